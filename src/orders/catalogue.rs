//! What the shop sells, and for how much. The total a customer sends is checked against it, never charged unchecked.

use super::request::OrderRequest;
use crate::{
    money::{Currency, Money},
    wire::{json::FieldError, order::Line},
};

/// Price of one piece in euro cents.
const PRICES: [(&str, i64); 5] = [("grinder", 4299), ("kettle", 2950), ("beans", 1450), ("cup", 890), ("filter", 390)];

/// An order whose every line has a price and whose total is what the customer expects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Priced {
    pub lines: Vec<Line>,
    pub total: Money,
}

/// Prices an order as of now, or says which fields do not fit the catalogue.
pub fn price(request: &OrderRequest) -> Result<Priced, Vec<FieldError>> {
    let mut errors = Vec::new();
    let mut lines = Vec::with_capacity(request.items.len());
    for (place, item) in request.items.iter().enumerate() {
        match PRICES.iter().find(|(sku, _)| *sku == item.sku) {
            Some(&(_, unit_price)) => lines.push(Line { sku: item.sku.clone(), quantity: item.quantity, unit_price }),
            None => errors.push(FieldError {
                pointer: format!("/items/{place}/sku"),
                detail: format!("{} is not in the catalogue", item.sku),
            }),
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    // At most 50 lines of 99 pieces: far from overflow.
    let sum: i64 = lines.iter().map(|line| line.quantity * line.unit_price).sum();
    let total = Currency::from_code(&request.currency).and_then(|currency| Money::new(sum, currency));
    match total {
        Some(total) if sum == request.total => Ok(Priced { lines, total }),
        _ => Err(vec![FieldError {
            pointer: "/total".to_owned(),
            detail: format!("is {}, but the items cost {sum}", request.total),
        }]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::orders::request::Item;

    fn order(items: &[(&str, i64)], total: i64) -> OrderRequest {
        OrderRequest {
            items: items.iter().map(|&(sku, quantity)| Item { sku: sku.to_owned(), quantity }).collect(),
            total,
            currency: "eur".to_owned(),
            payment_method: "pm_card_visa".to_owned(),
            client_reference: None,
        }
    }

    #[test]
    fn the_total_is_the_sum_of_the_lines_and_nothing_else() {
        assert_eq!(price(&order(&[("grinder", 1)], 4299)).unwrap().total.amount_minor(), 4299);
        assert_eq!(price(&order(&[("cup", 2), ("filter", 1)], 2170)).unwrap().lines.len(), 2);
        for wrong in [4298, 4300, 1] {
            assert_eq!(price(&order(&[("grinder", 1)], wrong)).unwrap_err()[0].pointer, "/total");
        }
    }

    #[test]
    fn what_is_not_sold_is_named() {
        assert_eq!(price(&order(&[("cup", 1), ("yacht", 1)], 890)).unwrap_err()[0].pointer, "/items/1/sku");
    }
}
