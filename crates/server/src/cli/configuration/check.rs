//! `semel config check`: checks everything about a configuration that can be known before a gateway starts.
//! It changes nothing.

use std::path::Path;

use http::HeaderName;
use semel_core::keep::{KEPT_FIELDS, is_kept_field};
use semel_core::policy::{KeepRequest, Mode};
use semel_core::{Clock, Policy, SystemClock};
use semel_gateway::former_names::{self, FormerName};
use semel_gateway::identity::jwt;
use semel_operations::certificates::GatewayCertificate;
use semel_operations::encryption::{CountsByKey, counted};
use semel_settings::{Config, Diagnostic, Errors, KeySource, Loaded, Origin, PrincipalSource, StoreLocation};
use semel_stores::{Access, OpenError};
use serde_json::{Value, json};

use super::CheckArgs;
use crate::cli::{CommandResult, load, runtime, say};

pub(super) fn run(args: &CheckArgs, config: Option<&Path>) -> anyhow::Result<CommandResult> {
    let mut report = ConfigurationReport::default();
    match load(config, args.settings.flags()) {
        Ok(loaded) => examine(&loaded, &mut report)?,
        Err(error) => match error.downcast_ref::<Errors>() {
            Some(errors) => report.errors.extend(errors.iter().map(ConfigurationFinding::from)),
            None => report.fail(&error),
        },
    }
    let usable = report.errors.is_empty();
    match args.output.json {
        true => say(report.to_json()),
        false => report.tell(),
    }
    Ok(if usable { CommandResult::Yes } else { CommandResult::No })
}

/// Findings about a configuration. The names in its JSON are stable.
#[derive(Default)]
struct ConfigurationReport {
    errors: Vec<ConfigurationFinding>,
    warnings: Vec<ConfigurationFinding>,
    /// Remarks on things that are as they should be.
    remarks: Vec<String>,
}

/// Fault or doubt.
struct ConfigurationFinding {
    /// Text for people, with its place.
    text: String,
    setting: Option<String>,
    /// File and line, variable or flag.
    source: Option<String>,
    /// Line and column in the file.
    place: Option<(usize, usize)>,
    message: String,
}

impl From<&Diagnostic> for ConfigurationFinding {
    fn from(diagnostic: &Diagnostic) -> ConfigurationFinding {
        let place = match &diagnostic.origin {
            Origin::File(place) => Some((place.line(), place.column())),
            Origin::Default | Origin::Variable(_) | Origin::Flag(_) => None,
        };
        ConfigurationFinding {
            text: diagnostic.to_string(),
            setting: diagnostic.setting.clone(),
            source: Some(diagnostic.origin.to_string()),
            place,
            message: diagnostic.message.clone(),
        }
    }
}

impl ConfigurationFinding {
    /// Makes a finding without a place in a file.
    fn elsewhere(text: String, message: String) -> ConfigurationFinding {
        ConfigurationFinding { text, setting: None, source: None, place: None, message }
    }

    fn to_json(&self) -> Value {
        json!({
            "setting": self.setting,
            "source": self.source,
            "line": self.place.map(|(line, _)| line),
            "column": self.place.map(|(_, column)| column),
            "message": self.message,
        })
    }
}

impl ConfigurationReport {
    fn fail(&mut self, error: &anyhow::Error) {
        self.fail_with(format!("{error:#}"));
    }

    fn fail_with(&mut self, message: String) {
        self.errors.push(ConfigurationFinding::elsewhere(message.clone(), message));
    }

    fn warn(&mut self, message: String) {
        self.warnings.push(ConfigurationFinding::elsewhere(format!("warning: {message}"), message));
    }

    fn to_json(&self) -> Value {
        let all = |findings: &[ConfigurationFinding]| {
            findings.iter().map(ConfigurationFinding::to_json).collect::<Vec<_>>()
        };
        json!({
            "ok": self.errors.is_empty(),
            "errors": all(&self.errors),
            "warnings": all(&self.warnings),
            "remarks": self.remarks,
        })
    }

    fn tell(&self) {
        if !self.errors.is_empty() {
            self.errors.iter().for_each(|error| eprintln!("{}", error.text));
            return;
        }
        self.warnings.iter().for_each(|warning| say(&warning.text));
        self.remarks.iter().for_each(say);
        say("the configuration can be used");
    }
}

/// Checks the files, the keys and the store that the configuration names.
fn examine(loaded: &Loaded, report: &mut ConfigurationReport) -> anyhow::Result<()> {
    let config = &loaded.config;
    if let Some(folder) = missing_folder(&config.store) {
        report.fail_with(format!("store = \"{}\": there is no folder {folder}; make it first", config.store));
        return Ok(());
    }
    if config.identity == PrincipalSource::ApiKey && config.store == StoreLocation::Memory {
        let message =
            "identity.source = \"api-key\" needs a store that keeps keys: use sqlite:PATH or postgres://…";
        report.fail_with(message.to_owned());
        return Ok(());
    }
    // A service at an address may start later; `semel doctor` asks it.
    let keys = match &config.identity {
        PrincipalSource::Jwt(settings) if matches!(settings.keys, KeySource::File(_)) => {
            runtime()?.block_on(jwt::count_keys(settings)).map(drop)
        }
        _ => Ok(()),
    };
    let shown = keys
        .and_then(|()| semel_operations::reconcile::look(config))
        .and_then(|()| config.encryption.as_ref().map_or(Ok(()), semel_operations::encryption::look))
        .and_then(|()| semel_operations::admin::access::look(config))
        .and_then(|()| semel_operations::certificates::look(config));
    let shown = match shown {
        Ok(shown) => shown,
        Err(error) => {
            report.fail(&error);
            return Ok(());
        }
    };
    report.warnings.extend(loaded.warnings.iter().map(ConfigurationFinding::from));
    for GatewayCertificate { setting, ends } in shown {
        if let Some(ends) = ends.filter(|ends| *ends < SystemClock.now()) {
            report.warn(format!(
                "`{setting}`: the certificate expired at {ends}: peers that check it refuse the connection; \
                 replace it"
            ));
        }
    }
    let (former, counted) = stored(config, report)?;
    semel_operations::encryption::doubts(config.encryption.as_ref(), &counted)
        .into_iter()
        .for_each(|doubt| report.warn(doubt));
    for FormerName { name, successor } in former {
        report.warn(match successor {
            Some(operation) => format!(
                "the store holds records of {name:?} from before the operation {:?} had a rule: they count for it while they \
                 live, since a gateway that starts takes the name as an alias; so must other programs on this store",
                operation.as_str()
            ),
            None => former_names::lost(&name),
        });
    }
    report.remarks = kept_fields(config);
    Ok(())
}

/// Names the stored fields of a request, if a worker executes commands or requests are stored while unknown.
fn kept_fields(config: &Config) -> Vec<String> {
    let defaults = ("commands without a rule of their own".to_owned(), &config.defaults);
    let named = config
        .operations
        .iter()
        .map(|operation| (format!("{:?}", operation.name.as_str()), &operation.policy));
    let keeps = |(_, policy): &(String, &Policy)| {
        policy.mode == Mode::Async || policy.keep_request == KeepRequest::WhileUnknown
    };
    let told = |(of, policy): (String, &Policy)| {
        let except = &policy.store_headers_except;
        let own =
            policy.store_request_headers.iter().filter(|name| !is_kept_field(name) && !except.contains(name));
        let kept = match policy.store_credentials {
            true => "every field, credentials included".to_owned(),
            false => {
                KEPT_FIELDS.into_iter().chain(own.map(HeaderName::as_str)).collect::<Vec<_>>().join(", ")
            }
        };
        let except: Vec<&str> = except.iter().map(HeaderName::as_str).collect();
        let except =
            if except.is_empty() { String::new() } else { format!("; except {}", except.join(", ")) };
        let until = match policy.keep_request {
            KeepRequest::Off => "a worker has executed it",
            KeepRequest::WhileUnknown => "its outcome is known",
        };
        format!("{of}: fields of a request that are kept until {until}: {kept}{except}")
    };
    std::iter::once(defaults).chain(named).filter(keeps).map(told).collect()
}

/// Returns the missing folder of a SQLite file: the gateway creates files, but no folders.
fn missing_folder(store: &StoreLocation) -> Option<String> {
    let StoreLocation::Sqlite(path) = store else { return None };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty())?;
    (!folder.is_dir()).then(|| folder.display().to_string())
}

/// Returns what the store holds without support in the configuration: operations without a rule, and the
/// number of values under each encryption key.
fn stored(
    config: &Config,
    report: &mut ConfigurationReport,
) -> anyhow::Result<(Vec<FormerName>, CountsByKey)> {
    match &config.store {
        StoreLocation::Memory => return Ok(Default::default()),
        StoreLocation::Sqlite(path) if !path.exists() => return Ok(Default::default()),
        StoreLocation::Sqlite(_) | StoreLocation::Postgres(_) => {}
    }
    let looked = runtime()?.block_on(async {
        let store = semel_stores::open_with(&config.store, Access::Read, None).await?;
        let unidentified = former_names::without_identity(config, &*store).await?;
        anyhow::Ok((store.operations().await?, store.key_uses().await?, unidentified))
    });
    match looked {
        Ok((live, uses, unidentified)) => {
            unidentified.into_iter().for_each(|warning| report.warn(warning));
            Ok((former_names::former_names(&config.operations, &live), counted(&uses)))
        }
        Err(error) => match error.downcast_ref().and_then(OpenError::older_schema) {
            Some(0) => Ok(Default::default()),
            // The gateway migrates it at its start; this check does not.
            Some(_) => {
                report.warn(format!("the records could not be read: {error}"));
                Ok(Default::default())
            }
            None => Err(error),
        },
    }
}
