//! Steps of the story. Each step makes a claim, which is checked against the ledger.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;

use super::PATIENCE;
use super::client::{DemoAnswer, Payment};
use super::introduction::LeftPayment;
use super::ledger::ChargeLedger;
use super::process::ServiceProcess;
use crate::cli::{say, show};
use crate::terminal::colours;

/// Story with its results so far.
pub(super) struct Story {
    folder: PathBuf,
    gateway: SocketAddr,
    service: ServiceProcess,
    colours: bool,
    /// True if the story pauses for reading.
    is_paced: bool,
    broken: Vec<String>,
}

/// Reading time of a word.
const WORD: Duration = Duration::from_millis(150);
/// Shortest and longest pause.
const PAUSES: [Duration; 2] = [Duration::from_millis(600), Duration::from_secs(4)];

impl Story {
    pub(super) fn new(folder: &Path, gateway: SocketAddr, service: ServiceProcess, is_paced: bool) -> Story {
        let colours = colours(&std::io::stdout());
        Story { folder: folder.to_owned(), gateway, service, colours, is_paced, broken: Vec::new() }
    }

    /// Shows a line, and pauses for reading it.
    async fn say(&self, line: String) {
        show(&line);
        if self.is_paced {
            let words = u32::try_from(line.split_whitespace().count()).unwrap_or(u32::MAX);
            tokio::time::sleep(WORD.saturating_mul(words).clamp(PAUSES[0], PAUSES[1])).await;
        }
    }

    /// Returns the payment service, at the end.
    pub(super) fn into_service(self) -> ServiceProcess {
        self.service
    }

    /// Tells the story. Returns true if the ledger proved every claim.
    pub(super) async fn tell(&mut self) -> anyhow::Result<bool> {
        if self.is_paced {
            say("(Told slowly, to be read; `--fast` tells it at once. Ctrl-C ends it.)\n");
        }
        self.say(format!(
            "A payment service listens on {}. It charges cards: each charge is a line in its ledger, and cannot be \
             taken back.",
            self.service.address
        ))
        .await;
        let semel =
            format!("Semel stands in front of it on {}. The service knows nothing of it.", self.gateway);
        self.say(semel).await;
        self.a_payment().await?;
        self.a_lost_answer().await?;
        self.another_amount().await?;
        self.other_words().await?;
        self.fifty_at_once().await?;
        self.killed().await?;
        say("");
        match &self.broken[..] {
            [] => say(self.green("The ledger proves every claim above.")),
            broken => {
                say(self.red("The ledger does not prove these claims:"));
                broken.iter().for_each(|claim| say(format!("  {claim}")));
            }
        }
        say("");
        Ok(self.broken.is_empty())
    }

    async fn a_payment(&mut self) -> anyhow::Result<()> {
        self.title("1", "A payment. The client names it with a key of its own making.").await;
        let answer =
            self.send(payment("first-payment-000001", r#"{"amount": 50, "currency": "EUR"}"#)).await?;
        self.claim("it is charged", answer.status == 201 && charges(&self.folder).len() == 1).await;
        Ok(())
    }

    async fn a_lost_answer(&mut self) -> anyhow::Result<()> {
        self.title(
            "2",
            "The connection breaks before the answer arrives. Was the card charged? The client asks again.",
        )
        .await;
        let slow = Payment { bad_day: Some("slow"), ..payment("second-payment-00002", r#"{"amount": 70}"#) };
        self.show_request(&slow).await;
        let connection = slow.clone().send_only(self.gateway).await?;
        self.wait_for("the charge", |folder| charges(folder).len() == 2).await?;
        drop(connection);
        self.say(format!("   {}", self.grey("… the connection is gone. The payment goes on without it.")))
            .await;
        let answer = self.send(slow).await?;
        self.claim("the retry gets the answer, and there is no second charge", {
            answer.status == 201 && answer.replayed() && charges(&self.folder).len() == 2
        })
        .await;
        Ok(())
    }

    async fn another_amount(&mut self) -> anyhow::Result<()> {
        self.title("3", "A bug: the same key with another amount. That is not a retry.").await;
        let answer =
            self.send(payment("first-payment-000001", r#"{"amount": 500, "currency": "EUR"}"#)).await?;
        self.claim(
            "it is refused, and nothing is charged",
            answer.status == 422 && charges(&self.folder).len() == 2,
        )
        .await;
        Ok(())
    }

    async fn other_words(&mut self) -> anyhow::Result<()> {
        self.title(
            "4",
            "Another JSON library on the retry: other order, other spaces, 50.0 for 50. The same payment.",
        )
        .await;
        let answer =
            self.send(payment("first-payment-000001", r#"{ "currency":"EUR",  "amount":50.0 }"#)).await?;
        self.claim("it is recognised", answer.replayed() && charges(&self.folder).len() == 2).await;
        Ok(())
    }

    async fn fifty_at_once(&mut self) -> anyhow::Result<()> {
        self.title("5", "An impatient client: fifty identical requests at the same moment.").await;
        let slow = Payment { bad_day: Some("slow"), ..payment("fifth-payment-000005", r#"{"amount": 20}"#) };
        self.show_request(&slow).await;
        let requests: Vec<_> = (0..50).map(|_| tokio::spawn(slow.clone().send(self.gateway))).collect();
        let (mut answered, mut in_progress, mut bodies) = (0, 0, BTreeSet::new());
        for request in requests {
            let answer = request.await??;
            match answer.status.as_u16() {
                201 => {
                    answered += 1;
                    bodies.insert(answer.body);
                }
                409 => in_progress += 1,
                _ => {}
            }
        }
        let count = match in_progress {
            0 => format!("all {answered} got the same answer"),
            _ => format!(
                "{answered} got the answer, {in_progress} were told to retry: it is still in progress"
            ),
        };
        self.say(format!("   {} {count}", self.grey("←"))).await;
        self.claim(
            "one charge, and one answer",
            answered + in_progress == 50 && bodies.len() == 1 && charges(&self.folder).len() == 3,
        )
        .await;
        Ok(())
    }

    async fn killed(&mut self) -> anyhow::Result<()> {
        self.title("6", "The worst day: the service is killed in the middle of a charge (kill -9).").await;
        let stuck =
            Payment { bad_day: Some("stuck"), ..payment("sixth-payment-000006", r#"{"amount": 90}"#) };
        self.show_request(&stuck).await;
        let request = tokio::spawn(stuck.clone().send(self.gateway));
        self.wait_for("the charge", |folder| charges(folder).len() == 4).await?;
        self.service.kill().await?;
        self.say(format!(
            "   {}",
            self.red("✗ the service is dead. It had charged the card, and sent no answer.")
        ))
        .await;
        let answer = request.await??;
        self.show_answer(&answer).await;
        self.service = ServiceProcess::start(&self.folder, self.service.address.port()).await?;
        self.say(format!("   {}", self.grey("… the service is back, and the client tries again:"))).await;
        let retry = payment("sixth-payment-000006", r#"{"amount": 90}"#);
        let answer = self.send(retry.clone()).await?;
        let unknown = answer.member("code").as_deref() == Some("IDEMPOTENCY_OUTCOME_UNKNOWN");
        self.claim("Semel does not guess: the outcome is unknown, and nothing runs again", {
            answer.status == 409 && unknown && charges(&self.folder).len() == 4
        })
        .await;
        let id = answer.member("operationId").context("the answer names its operation")?;
        self.settle(&id).await?;
        let answer = self.send(retry).await?;
        self.claim("the retry gets the charge that was found, and there is no other", {
            answer.status == 201 && answer.replayed() && charges(&self.folder).len() == 4
        })
        .await;
        Ok(())
    }

    /// Leaves a payment to be settled, as in the last step: the service dies after the charge.
    pub(super) async fn leave_a_payment(&mut self) -> anyhow::Result<LeftPayment> {
        let stuck =
            Payment { bad_day: Some("stuck"), ..payment("seventh-payment-00007", r#"{"amount": 60}"#) };
        let before = charges(&self.folder).len();
        let request = tokio::spawn(stuck.clone().send(self.gateway));
        self.wait_for("the charge", |folder| charges(folder).len() > before).await?;
        self.service.kill().await?;
        let answer = request.await??;
        self.service = ServiceProcess::start(&self.folder, self.service.address.port()).await?;
        let charges = charges(&self.folder);
        let charge = charges.last().context("the ledger has the charge")?;
        Ok(LeftPayment {
            operation_id: answer.member("operationId").context("the answer names its operation")?,
            key: stuck.key.to_owned(),
            amount: charge["amount"].as_u64().context("the charge has its amount")?,
            charge: charge["charge"].as_u64().context("the charge has its number")?,
            body: charge.to_string(),
        })
    }

    /// Settles the unknown command from the ledger, with an operator's command.
    async fn settle(&mut self, id: &str) -> anyhow::Result<()> {
        let charge = charges(&self.folder).into_iter().find(|charge| charge["operation"] == id);
        let charge = charge.context("the ledger has the charge under its operation id")?;
        let body = self.folder.join("found.json");
        std::fs::write(&body, charge.to_string())?;
        let operator = "… an operator looks into the ledger, finds the charge, and settles it:";
        self.say(format!("   {}", self.grey(operator))).await;
        let arguments = [
            ["records", "resolve"].map(str::to_owned).to_vec(),
            vec![id.to_owned(), "--verdict".into(), "executed".into(), "--status".into(), "201".into()],
            vec!["--body".into(), body.display().to_string()],
            vec!["--reason".into(), "found in the ledger".into()],
            vec!["--store".into(), format!("sqlite:{}", self.folder.join("semel.db").display())],
        ]
        .concat();
        let shown: Vec<String> = arguments
            .iter()
            .map(|word| if word.contains(' ') { format!("'{word}'") } else { word.clone() })
            .collect();
        self.say(format!("   $ semel {}", shown.join(" "))).await;
        // Settings of this folder and this shell belong to another gateway.
        let mut program = std::process::Command::new(std::env::current_exe()?);
        program.args(&arguments).current_dir(&self.folder);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SEMEL_"))
        {
            program.env_remove(name);
        }
        let output = program.output()?;
        let told = if output.status.success() { &output.stdout } else { &output.stderr };
        self.say(format!("   {}", String::from_utf8_lossy(told).trim_end())).await;
        self.claim("it is settled", output.status.success()).await;
        Ok(())
    }

    async fn send(&self, payment: Payment) -> anyhow::Result<DemoAnswer> {
        self.show_request(&payment).await;
        let answer = payment.send(self.gateway).await?;
        self.show_answer(&answer).await;
        Ok(answer)
    }

    async fn wait_for(&self, what: &str, happened: impl Fn(&Path) -> bool) -> anyhow::Result<()> {
        let waiting = async {
            while !happened(&self.folder) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.with_context(|| format!("{what} did not happen"))
    }

    async fn title(&self, number: &str, text: &str) {
        self.say(format!("\n{} {}", self.bold(&format!("{number}.")), self.bold(text))).await;
    }

    async fn show_request(&self, payment: &Payment) {
        let Payment { key, body, .. } = payment;
        self.say(format!("   {} POST /payments  Idempotency-Key: {key}  {body}", self.grey("→"))).await;
    }

    async fn show_answer(&self, answer: &DemoAnswer) {
        let replayed = if answer.replayed() { "  Idempotency-Replayed: true" } else { "" };
        let body = answer.member("code").unwrap_or_else(|| answer.body.trim_end().to_owned());
        self.say(format!("   {} {}{replayed}  {body}", self.grey("←"), answer.status)).await;
    }

    /// Shows a claim of a step with its result.
    async fn claim(&mut self, claim: &str, holds: bool) {
        let count = charges(&self.folder).len();
        let count = format!("the ledger counts {count} charge{}", if count == 1 { "" } else { "s" });
        if holds {
            self.say(format!("   {} {claim}; {count}", self.green("✓"))).await;
        } else {
            self.say(format!("   {} NOT SO: {claim}; {count}", self.red("✗"))).await;
            self.broken.push(claim.to_owned());
        }
    }

    fn painted(&self, code: &str, text: &str) -> String {
        if self.colours { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    fn bold(&self, text: &str) -> String {
        self.painted("1", text)
    }

    fn grey(&self, text: &str) -> String {
        self.painted("90", text)
    }

    fn green(&self, text: &str) -> String {
        self.painted("32", text)
    }

    fn red(&self, text: &str) -> String {
        self.painted("31", text)
    }
}

fn payment(key: &'static str, body: &'static str) -> Payment {
    Payment { key, body, bad_day: None }
}

fn charges(folder: &Path) -> Vec<Value> {
    ChargeLedger::of(folder).charges()
}
