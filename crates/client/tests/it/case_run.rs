//! One case of the shared table, with one transport and one journal. Called by `cases`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel_client::{
    ClientCommand, ClientOptions, ClientProfile, CommandClient, FileJournal, OnAccepted, SqliteJournal,
};
use serde_json::{Map, Value, json};

use crate::checks::{
    CallFacts, Checked, check, check_always, check_body, check_key, check_outcome, key_of, only,
};
use crate::faults::RealTransport;
use crate::manual::{ManualClock, ScriptedDraws};
use crate::scripted_server::ScriptedServer;
use crate::scripted_transport::{Script, ScriptedTransport, Sent};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JournalKind {
    None,
    File,
    Sqlite,
}

/// Event of an attempt: number, wait and reason.
type Told = (u32, u64, &'static str);

pub(crate) struct CaseRun {
    case: Map<String, Value>,
    journal_kind: JournalKind,
    journal_path: PathBuf,
    profile: ClientProfile,
    options: Map<String, Value>,
    origins: Vec<String>,
    clock: ManualClock,
    server: Arc<ScriptedServer>,
    transport: ScriptedTransport,
    told: Arc<Mutex<Vec<Told>>>,
    keys: Vec<String>,
    client: Option<CommandClient>,
}

impl CaseRun {
    /// Makes every call of a case, and checks what it did.
    pub(crate) async fn run(case: Value, real: RealTransport, journal_kind: JournalKind) -> Checked {
        let case = case.as_object().ok_or("a case is an object")?.clone();
        only(&case, &["name", "profile", "origins", "options", "random", "now", "journal", "calls"])?;
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let is_unwritable = case.get("journal") == Some(&json!("unwritable"));
        let profile = case.get("profile").map_or("semel", |profile| profile.as_str().unwrap());
        let now = case.get("now").map_or(1_800_000_000_000, |now| now.as_u64().unwrap());
        let clock = ManualClock::new(now);
        let server = Arc::new(ScriptedServer::start(profile, clock.clone()).await);
        let mut run = CaseRun {
            journal_kind,
            journal_path: folder.path().join(if is_unwritable { "absent/journal" } else { "journal" }),
            profile: match profile {
                "semel" => ClientProfile::Semel,
                "ietf" => ClientProfile::Ietf,
                "stripe" => ClientProfile::Stripe,
                other => return Err(format!("unknown profile {other}")),
            },
            options: case
                .get("options")
                .map_or_else(Map::new, |options| options.as_object().unwrap().clone()),
            origins: texts(case.get("origins").unwrap_or(&json!(["$server"]))),
            transport: ScriptedTransport::new(real, Arc::clone(&server), clock.clone()),
            server,
            clock,
            told: Arc::default(),
            keys: Vec::new(),
            client: None,
            case,
        };
        run.start()?;
        let calls = run.case["calls"].as_array().ok_or("a case has calls")?.clone();
        for (index, call) in calls.iter().enumerate() {
            let call = call.as_object().ok_or("a call is an object")?;
            run.call(call).await.map_err(|why| format!("call {}: {why}", index + 1))?;
        }
        Ok(())
    }

    fn start(&mut self) -> Checked {
        let random = self.case.get("random").cloned().unwrap_or(json!([0.5]));
        let draws = random.as_array().ok_or("draws are a list")?.iter().map(|draw| draw.as_f64().unwrap());
        let told = Arc::clone(&self.told);
        let origins = self.origins.iter().map(|origin| origin.replace("$server", &self.server.origin()));
        let mut builder = CommandClient::builder(origins)
            .profile(self.profile)
            .options(options(&self.options)?)
            .caller(self.options.get("caller").map_or("", |caller| caller.as_str().unwrap()))
            .clock(self.clock.clone())
            .random(ScriptedDraws::new(draws))
            .on_attempt(move |event| {
                let wait = u64::try_from(event.wait.as_millis()).unwrap();
                told.lock().unwrap().push((event.number, wait, event.reason()));
            });
        builder = match self.journal_kind {
            JournalKind::None => builder,
            JournalKind::File => builder.journal(FileJournal::new(&self.journal_path)),
            JournalKind::Sqlite => builder.journal(SqliteJournal::new(&self.journal_path)),
        };
        let client = builder.build_over(self.transport.clone()).map_err(|error| error.to_string())?;
        self.client = Some(client);
        Ok(())
    }

    fn client(&self) -> Result<&CommandClient, String> {
        self.client.as_ref().ok_or_else(|| "a restart is missing".to_owned())
    }

    async fn call(&mut self, call: &Map<String, Value>) -> Checked {
        let members = [
            "do",
            "request",
            "server",
            "cancelInWait",
            "cancelBefore",
            "options",
            "origins",
            "cut",
            "append",
            "by",
        ];
        only(call, &[&members[..], &["expect"]].concat())?;
        match call["do"].as_str() {
            Some("send" | "resume") => self.send(call).await,
            Some("pending") => self.check_journal(&call["expect"]["journal"]).await,
            Some("restart") => {
                self.client = None;
                for (name, value) in call.get("options").and_then(Value::as_object).into_iter().flatten() {
                    self.options.insert(name.clone(), value.clone());
                }
                if let Some(origins) = call.get("origins") {
                    self.origins = texts(origins);
                }
                self.start()
            }
            Some("tear_journal") => {
                self.client = None;
                self.tear(call)
            }
            Some("jump_clock") => {
                self.clock.jump(call["by"].as_i64().ok_or("a number")?);
                Ok(())
            }
            Some("advance_clock") => {
                self.clock.advance(call["by"].as_u64().ok_or("a number")?);
                Ok(())
            }
            other => Err(format!("unknown call {other:?}")),
        }
    }

    fn tear(&self, call: &Map<String, Value>) -> Checked {
        let mut content = std::fs::read(&self.journal_path).map_err(|error| error.to_string())?;
        if call.get("cut") == Some(&json!(true)) {
            let before = &content[..content.len() - 1];
            let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
            content.truncate(start + (content.len() - start) / 2);
        }
        content.extend_from_slice(call.get("append").map_or("", |text| text.as_str().unwrap()).as_bytes());
        std::fs::write(&self.journal_path, content).map_err(|error| error.to_string())
    }

    async fn send(&mut self, call: &Map<String, Value>) -> Checked {
        let items = call.get("server").and_then(Value::as_array).cloned().unwrap_or_default();
        let mut script = Script::default();
        for item in items {
            let item = item.as_object().ok_or("an item is an object")?.clone();
            let members = [
                "status",
                "headers",
                "body",
                "problem",
                "operation",
                "operationUrl",
                "bodySize",
                "fault",
                "elapse",
            ];
            only(&item, &[&members[..], &["jump"]].concat())?;
            script.items.push_back(item);
        }
        let cancellation = script.cancellation.clone();
        *self.transport.script() = script;
        self.told.lock().unwrap().clear();
        let number =
            call.get("cancelInWait").map(|number| usize::try_from(number.as_u64().unwrap()).unwrap());
        self.clock.begin(number.map(|number| (number, cancellation.clone())));
        if call.get("cancelBefore") == Some(&json!(true)) {
            cancellation.cancel();
        }
        let request = call.get("request").cloned().unwrap_or(json!({}));
        let request = request.as_object().ok_or("a request is an object")?;
        only(request, &["method", "path", "url", "body", "headers", "key", "intent"])?;
        let command = self.command(request).cancellation(cancellation);
        let client = self.client()?;
        let ended = match call["do"].as_str() {
            Some("send") => client.send(command).await,
            _ => client.resume(request["intent"].as_str().ok_or("an intent")?, command).await,
        };
        let sent = self.sent()?;
        let facts = CallFacts { server: &self.server, profile: self.profile, keys: &self.keys };
        check_always(&facts, request, &sent)?;
        let expect = call["expect"].as_object().ok_or("an expectation")?;
        let members =
            ["outcome", "status", "body", "replayed", "operation", "expires", "attempts", "stopped", "last"];
        only(expect, &[&members[..], &["requests", "waits", "journal", "hook", "tokens"]].concat())?;
        check_outcome(expect, &ended, &sent)?;
        self.check_requests(expect, &sent)?;
        self.check_rest(expect).await?;
        self.keys.extend(sent.iter().filter_map(key_of));
        Ok(())
    }

    fn command(&self, request: &Map<String, Value>) -> ClientCommand {
        let text = |name: &str| request.get(name).map(|value| value.as_str().unwrap().to_owned());
        let method = text("method").unwrap_or_else(|| "POST".into()).parse().unwrap();
        let path = text("path").unwrap_or_else(|| "/payments".into());
        let url = text("url").unwrap_or_else(|| self.server.origin() + &path);
        let mut command = ClientCommand::new(method, url);
        command = match request.get("body").unwrap_or(&json!({"amount": 5})) {
            Value::Null => command,
            Value::String(text) => command.body(text.clone()),
            body => command.json(body),
        };
        for (name, value) in request.get("headers").and_then(Value::as_object).into_iter().flatten() {
            command = command.header(name, value.as_str().unwrap());
        }
        if let Some(key) = text("key") {
            command = command.key(key);
        }
        match text("intent") {
            Some(intent) => command.intent(intent),
            None => command,
        }
    }

    /// Returns the requests of the call, which must be as many as the items of the script.
    fn sent(&self) -> Result<Vec<Sent>, String> {
        let script = self.transport.script();
        check!(script.surplus == 0, "{} requests beyond the script: {:?}", script.surplus, script.sent);
        check!(script.items.is_empty(), "items that were not asked for: {:?}", script.items);
        Ok(script.sent.clone())
    }

    fn check_requests(&self, expect: &Map<String, Value>, sent: &[Sent]) -> Checked {
        let Some(wanted) = expect.get("requests").and_then(Value::as_array) else { return Ok(()) };
        check!(sent.len() == wanted.len(), "{} requests: {sent:?}", sent.len());
        let mut earlier = self.keys.clone();
        for (one, wanted) in sent.iter().zip(wanted) {
            let wanted = wanted.as_object().ok_or("an object")?;
            only(wanted, &["method", "path", "key", "headers", "body"])?;
            let key = key_of(one);
            if let Some(method) = wanted.get("method") {
                check!(*method == one.method.as_str(), "method {}", one.method);
            }
            if let Some(path) = wanted.get("path") {
                check!(*path == one.target, "path {}", one.target);
            }
            if let Some(wanted) = wanted.get("key") {
                check_key(key.as_ref(), wanted, &earlier)?;
            }
            for (name, value) in wanted.get("headers").and_then(Value::as_object).into_iter().flatten() {
                let found = one.headers.get(name).map(|value| value.to_str().unwrap());
                check!(found == value.as_str(), "{name} is {found:?}");
            }
            if let Some(wanted) = wanted.get("body") {
                check_body(&one.body, wanted)?;
            }
            earlier.extend(key);
        }
        Ok(())
    }

    async fn check_rest(&self, expect: &Map<String, Value>) -> Checked {
        if let Some(waits) = expect.get("waits") {
            check!(*waits == json!(self.clock.waits()), "waits are {:?}", self.clock.waits());
        }
        if let Some(tokens) = expect.get("tokens") {
            check!(*tokens == self.client()?.tokens(), "{} tokens", self.client()?.tokens());
        }
        if let Some(journal) = expect.get("journal") {
            self.check_journal(journal).await?;
        }
        let Some(hook) = expect.get("hook").and_then(Value::as_array) else { return Ok(()) };
        let told = self.told.lock().unwrap();
        check!(told.len() == hook.len(), "hook: {told:?}");
        for ((number, wait, reason), wanted) in told.iter().zip(hook) {
            let found = json!({"number": number, "wait": wait, "reason": reason});
            for (name, value) in wanted.as_object().into_iter().flatten() {
                check!(found.get(name) == Some(value), "hook: {found}");
            }
        }
        Ok(())
    }

    async fn check_journal(&self, wanted: &Value) -> Checked {
        let pending = self.client()?.pending().await.map_err(|error| error.to_string())?;
        let intents: Vec<_> = pending.iter().map(|entry| &entry.intent).collect();
        check!(*wanted == json!(intents), "the journal has {intents:?}");
        Ok(())
    }
}

/// Returns the client's options.
fn options(given: &Map<String, Value>) -> Result<ClientOptions, String> {
    let mut options = ClientOptions::default();
    for (name, value) in given {
        let number = || value.as_u64().ok_or_else(|| format!("{name} is no number"));
        let count = || u32::try_from(number()?).map_err(|error| error.to_string());
        match name.as_str() {
            "base" => options.base = Duration::from_millis(number()?),
            "cap" => options.cap = Duration::from_millis(number()?),
            "deadline" => options.deadline = Duration::from_millis(number()?),
            "attemptTimeout" => options.attempt_timeout = Duration::from_millis(number()?),
            "retryAfterMax" => options.retry_after_max = Duration::from_millis(number()?),
            "maxAge" => options.max_age = Duration::from_millis(number()?),
            "attempts" => options.attempts = count()?,
            "budgetTokens" => options.budget_tokens = count()?,
            "budgetCost" => options.budget_cost = count()?,
            "budgetReturn" => options.budget_return = count()?,
            "responseBound" => options.response_bound = usize::try_from(number()?).unwrap(),
            "onAccepted" if value == "poll" => options.on_accepted = OnAccepted::Poll,
            "onAccepted" if value == "return" => options.on_accepted = OnAccepted::Return,
            "caller" => {}
            other => return Err(format!("unknown option {other}")),
        }
    }
    Ok(options)
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}
