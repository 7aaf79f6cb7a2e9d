//! Bad days of the payment service, each for the next payment only.
//!
//! They are not in the ledger: a service that was started again has none. The names are those of
//! `examples/payments`.

use serde_json::{Map, Value, json};

/// Fault of the next payment, after its charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadDay {
    /// No answer until the client gives up.
    TimeoutAfterCharging,
    /// The process is killed.
    DieAfterCharging,
    /// The answer is 500.
    ErrorAfter,
    /// The event is sent twice.
    DoubleWebhooks,
}

impl BadDay {
    /// All bad days in the order in which a payment meets them, with their names.
    const ALL: [(BadDay, &'static str); 4] = [
        (BadDay::TimeoutAfterCharging, "timeout_after_charging"),
        (BadDay::DieAfterCharging, "die_after_charging"),
        (BadDay::ErrorAfter, "error_after"),
        (BadDay::DoubleWebhooks, "double_webhooks"),
    ];
    /// Bad days of the answer. A payment has one at most.
    const OF_THE_ANSWER: [BadDay; 3] =
        [BadDay::TimeoutAfterCharging, BadDay::DieAfterCharging, BadDay::ErrorAfter];
}

/// Bad days that are armed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ArmedDays([bool; BadDay::ALL.len()]);

impl ArmedDays {
    /// Arms or disarms the named days, and leaves the others; all or nothing.
    pub(super) fn change(&mut self, json: &[u8]) -> Result<(), String> {
        let changes: Map<String, Value> = serde_json::from_slice(json)
            .map_err(|_| "an object is needed, such as {\"error_after\": true}".to_owned())?;
        let mut changed = self.clone();
        for (name, value) in &changes {
            let Some((day, name)) = BadDay::ALL.iter().find(|(_, known)| known == name) else {
                let known = BadDay::ALL.map(|(_, known)| known).join(", ");
                return Err(format!("there is no such switch; there are {known}"));
            };
            changed.0[*day as usize] =
                value.as_bool().ok_or_else(|| format!("\"{name}\" is true or false"))?;
        }
        *self = changed;
        Ok(())
    }

    /// Returns true if the day is armed, and disarms it.
    pub(super) fn take(&mut self, day: BadDay) -> bool {
        std::mem::take(&mut self.0[day as usize])
    }

    /// Returns the first armed day of the answer, and disarms it.
    pub(super) fn take_one_of_the_answer(&mut self) -> Option<BadDay> {
        BadDay::OF_THE_ANSWER.into_iter().find(|day| self.take(*day))
    }

    /// Returns all days, and whether they are armed.
    pub(super) fn show(&self) -> Value {
        BadDay::ALL.iter().map(|(day, name)| (*name, json!(self.0[*day as usize]))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_day_is_for_one_payment() {
        let mut days = ArmedDays::default();
        days.change(br#"{"error_after": true, "die_after_charging": true, "double_webhooks": true}"#)
            .expect("these are names");
        assert_eq!(days.take_one_of_the_answer(), Some(BadDay::DieAfterCharging), "one of the answer");
        assert_eq!(days.take_one_of_the_answer(), Some(BadDay::ErrorAfter), "the other stays armed");
        assert_eq!(days.take_one_of_the_answer(), None);
        assert!(days.take(BadDay::DoubleWebhooks) && !days.take(BadDay::DoubleWebhooks));
    }

    #[test]
    fn a_wrong_change_changes_nothing() {
        let mut days = ArmedDays::default();
        for wrong in ["[]", "", r#"{"error_after": 1}"#, r#"{"error_after": true, "decline": true}"#] {
            assert!(days.change(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert_eq!(days, ArmedDays::default());
    }

    #[test]
    fn every_bad_day_has_its_own_place_and_is_shown() {
        for (place, (day, name)) in BadDay::ALL.iter().enumerate() {
            assert_eq!(*day as usize, place, "{name}");
        }
        let mut days = ArmedDays::default();
        days.change(br#"{"timeout_after_charging": true}"#).expect("it is a name");
        assert_eq!(
            days.show(),
            json!({
                "timeout_after_charging": true, "die_after_charging": false, "error_after": false,
                "double_webhooks": false
            })
        );
    }
}
