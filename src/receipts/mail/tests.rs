use super::*;

fn answer(status: u16, body: &str) -> Answer {
    Answer { status: StatusCode::from_u16(status).unwrap(), body: Bytes::copy_from_slice(body.as_bytes()) }
}

fn word(sending: &Sending) -> &'static str {
    match sending {
        Sending::Sent { .. } => "sent",
        Sending::Refused { .. } => "refused",
        Sending::Unavailable { .. } => "unavailable",
    }
}

#[test]
fn only_what_the_service_says_about_this_mail_is_final() {
    let conflict = |name: &str| format!(r#"{{"statusCode":409,"name":"{name}","message":"m"}}"#);
    let table = [
        (200, r#"{"id":"m1"}"#.to_owned(), "sent"),
        (200, "{}".to_owned(), "unavailable"),
        (200, r#"{"id":"m"#.to_owned(), "unavailable"),
        (202, r#"{"id":"m1"}"#.to_owned(), "unavailable"),
        (302, String::new(), "unavailable"),
        (400, String::new(), "refused"),
        (401, String::new(), "unavailable"),
        (403, String::new(), "unavailable"),
        (404, String::new(), "unavailable"),
        (405, String::new(), "unavailable"),
        (408, String::new(), "unavailable"),
        (409, conflict("invalid_idempotent_request"), "refused"),
        (409, conflict("concurrent_idempotent_requests"), "unavailable"),
        (409, String::new(), "unavailable"),
        (413, String::new(), "refused"),
        (422, r#"{"name":"validation_error","message":"m"}"#.to_owned(), "refused"),
        (429, String::new(), "unavailable"),
        (500, String::new(), "unavailable"),
        (502, "<html>".to_owned(), "unavailable"),
        (503, String::new(), "unavailable"),
    ];
    for (status, body, expected) in table {
        assert_eq!(word(&sending(&answer(status, &body))), expected, "{status} {body}");
    }
}

#[test]
fn a_look_up_finds_doubts_or_denies() {
    let listed = |body| found(&answer(200, body));
    assert_eq!(listed(r#"{"data":[{"id":"m1"},{"id":"m2"}]}"#), Found::Delivered { mail_id: "m1".to_owned() });
    assert_eq!(listed(r#"{"data":[]}"#), Found::NotDelivered);
    assert!(matches!(listed("{}"), Found::Unavailable { .. }));
    // "Not found" by an address that knows no such page says nothing about the mail.
    assert!(matches!(found(&answer(404, r#"{"data":[]}"#)), Found::Unavailable { .. }));
}

#[test]
fn a_complaint_is_one_line_and_not_a_novel() {
    let body = format!(r#"{{"name":"validation_error","message":"a\nb{}"}}"#, "c".repeat(10_000));
    let Sending::Refused { why } = sending(&answer(422, &body)) else { panic!("not refused") };
    assert!(why.starts_with("the mail service answered 422 validation_error: abc") && why.len() <= 300, "{why}");
    let body = r#"{"name":"validation_error","message":"Invalid `to`: <ada@example.org>, is it a@b.c\nor\td@e.f?"}"#;
    let Sending::Refused { why } = sending(&answer(422, body)) else { panic!("not refused") };
    assert_eq!(why, "the mail service answered 422 validation_error: Invalid `to`: … is it … or… ");
}
