use super::*;

const TAPS: u64 = 200_000;

fn network(profile: Profile) -> Network {
    Network { seed: 42, profile }
}

fn share(count: usize) -> f64 {
    count as f64 / TAPS as f64
}

#[track_caller]
fn assert_near(share: f64, chance: f64) {
    // Five standard deviations: with a fixed seed this holds or does not, for good.
    let slack = 5.0 * (chance * (1.0 - chance) / TAPS as f64).sqrt();
    assert!((share - chance).abs() <= slack, "{share} is not {chance}");
}

/// The reference values of the generator's authors, for the seed 1234567.
#[test]
fn it_is_the_generator_it_claims_to_be() {
    let step = 0x9e37_79b9_7f4a_7c15_u64;
    let drawn: Vec<u64> = (0..3).map(|n| mix(1_234_567_u64.wrapping_add(step.wrapping_mul(n)))).collect();
    assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
}

#[test]
fn every_chance_comes_true_as_often_as_it_says() {
    let count =
        |profile, wanted: fn(Fate) -> bool| (0..TAPS).filter(|tap| wanted(network(profile).fate(*tap, 1))).count();
    let none = Profile::NONE;
    assert_eq!(count(none, |fate| fate != Fate::Answered), 0);
    assert_near(share(count(Profile::PHONES, |fate| fate == Fate::RequestLost)), 0.006);
    assert_near(share(count(Profile::PHONES, |fate| fate == Fate::AnswerLost)), 0.994 * 0.004);
    let cut = Profile { hang_up: 0.1, reset: 0.2, ..none };
    assert_near(share(count(cut, |fate| matches!(fate, Fate::HangUp { .. }))), 0.1);
    assert_near(share(count(cut, |fate| fate == Fate::Reset)), 0.2);
    assert_near(share(count(Profile { sent_twice: 0.3, ..none }, |fate| fate == Fate::SentTwice)), 0.3);

    let turns = network(Profile { double_tap: 0.1, app_killed: 0.2, tunnel: 0.3, ..none });
    let turns: Vec<Turn> = (0..TAPS).map(|tap| turns.turn(tap)).collect();
    let count = |wanted: fn(&Turn) -> bool| share(turns.iter().filter(|turn| wanted(turn)).count());
    assert_near(count(|turn| matches!(turn, Turn::DoubleTap { .. })), 0.1);
    assert_near(count(|turn| matches!(turn, Turn::AppKilled { .. })), 0.2);
    assert_near(count(|turn| matches!(turn, Turn::Tunnel { .. })), 0.3);
}

/// Whoever looks, in whatever order and however often.
#[test]
fn a_fate_depends_on_nothing_but_who_it_is_for() {
    let network = network(Profile::STRESS);
    let forwards: Vec<Fate> = (0..1000).map(|tap| network.fate(tap, 2)).collect();
    let mut backwards: Vec<Fate> = (0..1000).rev().map(|tap| network.fate(tap, 2)).collect();
    backwards.reverse();
    assert_eq!(forwards, backwards);
    let other = Network { seed: 43, ..network };
    assert_ne!(forwards, (0..1000).map(|tap| other.fate(tap, 2)).collect::<Vec<_>>());
    assert_ne!(forwards, (0..1000).map(|tap| network.fate(tap, 3)).collect::<Vec<_>>());
}

/// A new kind of fault takes nothing from those that were there: draws do not share their numbers.
#[test]
fn one_more_fault_changes_no_other() {
    let (few, many) = (network(Profile::PHONES), network(Profile { sent_twice: 0.5, tunnel: 0.5, ..Profile::PHONES }));
    for tap in 0..20_000 {
        let (few, many) = (few.fate(tap, 1), many.fate(tap, 1));
        assert!(few == many || (few, many) == (Fate::Answered, Fate::SentTwice), "{tap}: {few:?} {many:?}");
    }
}

#[test]
fn equal_networks_have_equal_hashes_and_others_do_not() {
    let one = network(Profile::PHONES);
    assert_eq!(one.fate_hash(1000, 6), one.fate_hash(1000, 6));
    for other in [
        Network { seed: 43, ..one },
        network(Profile::NONE),
        network(Profile { reset: 0.01, ..Profile::PHONES }),
        network(Profile { double_tap: 0.01, ..Profile::PHONES }),
    ] {
        assert_ne!(one.fate_hash(1000, 6), other.fate_hash(1000, 6), "{other:?}");
    }
    assert_ne!(one.fate_hash(1000, 6), one.fate_hash(1001, 6));
}

/// What a client that buys with every attempt costs, straight from the model: p / (1 - p) extra orders per tap, whatever the
/// chance that a request is lost.
#[test]
fn extra_orders_are_a_matter_of_lost_answers_alone() {
    for request_lost in [0.0, 0.006, 0.3] {
        let network = network(Profile { request_lost, answer_lost: 0.02, ..Profile::NONE });
        let executed = |tap| {
            let fates = (1..50).map(|attempt| network.fate(tap, attempt));
            let mut executed = 0;
            for fate in fates {
                executed += usize::from(fate != Fate::RequestLost);
                if fate == Fate::Answered {
                    break;
                }
            }
            executed
        };
        let extra: usize = (0..TAPS).map(|tap| executed(tap) - 1).sum();
        assert_near(share(extra), 0.02 / 0.98);
    }
}

#[test]
fn a_profile_is_a_name_and_what_differs_from_it() {
    let read = |text: &str| text.parse::<Profile>();
    assert_eq!(read("stress"), Ok(Profile::STRESS));
    assert_eq!(read("phones,answer_lost=0.05"), Ok(Profile { answer_lost: 0.05, ..Profile::PHONES }));
    assert_eq!(read("tunnel=1"), Ok(Profile { tunnel: 1.0, ..Profile::NONE }));
    for (name, _) in Profile::NONE.chances() {
        let one = read(&format!("{name}=0.25")).unwrap();
        assert_eq!(one.chances().iter().find(|(of, _)| *of == name).unwrap().1, 0.25, "{name}");
    }
    let wrong = ["", "phone", "answer_lost", "answer_lost=", "answer_lost=1.1", "answer_lost=NaN", "lost=0.1"];
    for wrong in wrong {
        assert!(read(wrong).is_err(), "{wrong}");
    }
    assert!(read("hang_up=0.6,reset=0.6").unwrap_err().contains("together"));
}
