//! What a running demo says first. Question: what can I try right now?

use std::time::Duration;

use uuid::Uuid;

use super::Stack;
use crate::{database::embedded::default_data_folder, ids::CustomerId};

const CUSTOMER: CustomerId = CustomerId(42);
const TOKEN_TTL: Duration = Duration::from_secs(24 * 60 * 60);
const ONE_GRINDER: &str =
    r#"{"items":[{"sku":"grinder","quantity":1}],"total":4299,"currency":"eur","payment_method":"pm_card_visa"}"#;
const TWO_GRINDERS: &str =
    r#"{"items":[{"sku":"grinder","quantity":2}],"total":8598,"currency":"eur","payment_method":"pm_card_visa"}"#;

pub(super) fn text(stack: &Stack) -> anyhow::Result<String> {
    let state = stack.state();
    let token = state.token(CUSTOMER, TOKEN_TTL)?;
    let key = Uuid::new_v4();
    let order = |body: &str| {
        format!(
            "curl -i {}/v1/orders -H 'Authorization: Bearer {token}' -H 'Idempotency-Key: {key}' \
             -H 'Content-Type: application/json' -d '{body}'",
            state.api_url
        )
    };
    let console = state.console_url.as_deref().unwrap_or("not started");
    let mail = state.mail_url.as_deref().unwrap_or("not started");
    let folder = stack.folder().path().display();
    // Other commands look at the usual folder unless they are told another.
    let usual =
        default_data_folder().is_ok_and(|usual| usual.canonicalize().is_ok_and(|it| it == stack.folder().path()));
    let there = if usual { String::new() } else { format!(" --data-dir {folder}") };
    Ok(format!(
        "Ready.\n\n\
         api      {}\nconsole  {console}\ngateway  {}\nmail     {mail} (every mail delivered: {mail}/_mock/mails)\ndata     {folder} (logs in {folder}/log)\n\n\
         A fresh order: 201, and the customer is charged once.\n{}\n\n\
         The same again: the same bytes, with `idempotent-replayed: true`.\n{}\n\n\
         The same key for another order: refused with 422, nothing is charged.\n{}\n\n\
         A token for another customer:  checkout token 43{there}\n\
         Was every promise kept?        checkout verify{there}\n\n\
         Ctrl-C stops everything.",
        state.api_url,
        state.gateway_url,
        order(ONE_GRINDER),
        order(ONE_GRINDER),
        order(TWO_GRINDERS),
    ))
}
