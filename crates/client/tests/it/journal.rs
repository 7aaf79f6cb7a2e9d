//! Journals on real files: torn and damaged lines, the format, modes, and the use of one file by two.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use semel_client::{
    AttemptFault, AttemptRequest, CallError, ClientCommand, ClientFuture, CommandClient, CommandKey,
    CommandResponse, FileJournal, IntentJournal, JournalEntry, JournalError, MemoryJournal, SqliteJournal,
    Transport,
};

fn entry(intent: &str) -> JournalEntry {
    JournalEntry {
        intent: intent.into(),
        key: "0123456789abcdef".into(),
        digest: "d1".into(),
        origin: "https://pay.example:443".into(),
        caller: "worker-1".into(),
        at: 1_800_000_000_000,
    }
}

fn intents(journal: &dyn IntentJournal) -> Vec<String> {
    journal.pending().unwrap().into_iter().map(|entry| entry.intent).collect()
}

fn journals(folder: &Path) -> Vec<Box<dyn IntentJournal>> {
    vec![
        Box::new(FileJournal::new(folder.join("file"))),
        Box::new(SqliteJournal::new(folder.join("sqlite"))),
        Box::new(MemoryJournal::new()),
    ]
}

#[test]
fn every_journal_keeps_entries_in_their_order_until_they_are_cleared() {
    let folder = tempfile::tempdir().unwrap();
    for journal in journals(folder.path()) {
        for intent in ["c", "a", "b"] {
            journal.begin(&entry(intent)).unwrap();
        }
        assert!(matches!(journal.begin(&entry("a")), Err(JournalError::IntentPending)));
        assert_eq!(journal.pending().unwrap()[1], entry("a"));
        journal.clear("c", &entry("c").key).unwrap();
        journal.clear("no such intent", &entry("c").key).unwrap();
        journal.begin(&entry("c")).unwrap();
        assert_eq!(intents(&*journal), ["a", "b", "c"]);
    }
}

#[test]
fn an_entry_is_cleared_with_its_own_key_only() {
    let folder = tempfile::tempdir().unwrap();
    for journal in journals(folder.path()) {
        journal.begin(&entry("a")).unwrap();
        journal.clear("a", &"a-key-of-an-older-command".into()).unwrap();
        assert_eq!(intents(&*journal), ["a"]);
        journal.clear("a", &entry("a").key).unwrap();
        assert_eq!(intents(&*journal), [""; 0]);
    }
}

#[tokio::test]
async fn forget_clears_the_entry_of_an_intent_whatever_its_key() {
    let origin = "http://127.0.0.1:1";
    let folder = tempfile::tempdir().unwrap();
    for journal in journals(folder.path()) {
        journal.begin(&entry("a")).unwrap();
        journal.begin(&entry("b")).unwrap();
        let client = CommandClient::builder([origin]).shared_journal(Arc::from(journal)).build().unwrap();
        client.forget("a").await.unwrap();
        client.forget("no such intent").await.unwrap();
        let left: Vec<_> = client.pending().await.unwrap().into_iter().map(|entry| entry.intent).collect();
        assert_eq!(left, ["b"]);
    }
}

#[test]
fn a_file_has_the_lines_that_other_languages_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let journal = FileJournal::new(&path);
    journal.begin(&entry("invoice 4711")).unwrap();
    journal.clear("invoice 4711", &"0123456789abcdef".into()).unwrap();
    let lines = "{\"begin\":{\"intent\":\"invoice 4711\",\"key\":\"0123456789abcdef\",\"digest\":\"d1\",\
                 \"origin\":\"https://pay.example:443\",\"caller\":\"worker-1\",\"at\":1800000000000}}\n\
                 {\"clear\":\"invoice 4711\"}\n";
    assert_eq!(std::fs::read_to_string(&path).unwrap(), lines);
}

#[test]
fn every_cut_of_the_last_line_counts_as_never_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let journal = FileJournal::new(&path);
    journal.begin(&entry("a")).unwrap();
    let first = std::fs::read(&path).unwrap().len();
    journal.begin(&entry("b")).unwrap();
    drop(journal);
    let whole = std::fs::read(&path).unwrap();
    for length in first..whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        let journal = FileJournal::new(&path);
        assert_eq!(intents(&journal), ["a"], "cut at {length}");
        journal.begin(&entry("c")).unwrap();
        drop(journal);
        assert_eq!(intents(&FileJournal::new(&path)), ["a", "c"], "cut at {length}");
    }
}

#[test]
fn a_damaged_line_makes_the_journal_unavailable_and_its_error_shows_no_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let begin = "{\"begin\":{\"intent\":\"a\",\"key\":\"secret-secret-secret\",\"digest\":\"\",\"origin\":\"\",\
                 \"caller\":\"\",\"at\":1}}\n";
    let unknown = begin.replace("\"at\":1", "\"at\":1,\"more\":2");
    for content in
        ["\n", "{}\n", "secret\n{\"clear\":\"a\"}\n", &begin.repeat(2), &unknown, "{\"clear\":1}\n"]
    {
        std::fs::write(&path, content).unwrap();
        let error = FileJournal::new(&path).pending().expect_err(content);
        assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), content, "a damaged file is left as it is");
    }
}

#[test]
fn a_file_is_one_processs_and_can_be_taken_over_when_it_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let first = FileJournal::new(&path);
    first.begin(&entry("a")).unwrap();
    let second = FileJournal::new(&path);
    assert!(matches!(second.begin(&entry("b")), Err(JournalError::Unavailable(_))));
    drop(first);
    second.begin(&entry("b")).unwrap();
    assert_eq!(intents(&second), ["a", "b"]);
}

#[test]
fn a_file_of_mostly_cleared_entries_is_written_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let journal = FileJournal::new(&path);
    journal.begin(&entry("stays")).unwrap();
    for number in 0..600 {
        journal.begin(&entry(&format!("n{number}"))).unwrap();
        journal.clear(&format!("n{number}"), &entry("").key).unwrap();
    }
    assert_eq!(intents(&journal), ["stays"]);
    let lines = std::fs::read_to_string(&path).unwrap().lines().count();
    assert!(lines < 300, "{lines} lines");
}

#[test]
fn one_database_can_be_used_by_two() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let (first, second) = (SqliteJournal::new(&path), SqliteJournal::new(&path));
    first.begin(&entry("a")).unwrap();
    assert!(matches!(second.begin(&entry("a")), Err(JournalError::IntentPending)));
    second.clear("a", &entry("a").key).unwrap();
    assert_eq!(intents(&first), [""; 0]);
}

#[cfg(unix)]
#[test]
fn only_the_owner_may_read_the_files() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    for journal in journals(folder.path()) {
        journal.begin(&entry("a")).unwrap();
    }
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let file = file.unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o077, 0, "{:?}", file.path());
    }
}

#[test]
fn a_file_that_is_no_database_is_unavailable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    std::fs::write(
        &path,
        "this is a text, and no database, and longer than a header has to be to be looked at",
    )
    .unwrap();
    assert!(matches!(SqliteJournal::new(&path).begin(&entry("a")), Err(JournalError::Unavailable(_))));
}

#[tokio::test]
async fn an_intent_without_a_journal_and_a_journal_that_panics_send_nothing() {
    struct Broken;

    impl IntentJournal for Broken {
        fn begin(&self, _: &JournalEntry) -> Result<(), JournalError> {
            panic!("on purpose")
        }

        fn clear(&self, _: &str, _: &CommandKey) -> Result<(), JournalError> {
            Ok(())
        }

        fn pending(&self) -> Result<Vec<JournalEntry>, JournalError> {
            Ok(Vec::new())
        }
    }

    // No server is there: an attempt would end with another error.
    let origin = "http://127.0.0.1:1";
    let command = || ClientCommand::post(format!("{origin}/payments")).intent("invoice 4711");
    let without = CommandClient::new([origin]).unwrap();
    let broken = CommandClient::builder([origin]).shared_journal(Arc::new(Broken)).build().unwrap();
    for client in [without, broken] {
        assert!(matches!(client.send(command()).await, Err(CallError::JournalUnavailable(_))));
    }
}

#[tokio::test]
async fn a_slow_call_does_not_clear_the_entry_of_a_newer_command() {
    /// Transport on whose attempt the intent is settled and begun anew, as by another process.
    struct Overtaken(Arc<MemoryJournal>);

    impl Transport for Overtaken {
        fn send(&self, _: AttemptRequest) -> ClientFuture<'_, Result<CommandResponse, AttemptFault>> {
            let older = self.0.pending().unwrap().remove(0);
            self.0.clear(&older.intent, &older.key).unwrap();
            self.0.begin(&JournalEntry { key: "a-key-of-a-newer-command".into(), ..older }).unwrap();
            let headers = [("idempotency-operation-id", "op_1")]
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            let answer =
                CommandResponse::new(StatusCode::CREATED, headers.into_iter().collect(), Bytes::new());
            Box::pin(async move { Ok(answer) })
        }
    }

    let origin = "http://pay.example";
    let journal = Arc::new(MemoryJournal::new());
    let builder = CommandClient::builder([origin]).shared_journal(journal.clone());
    let client = builder.build_over(Overtaken(journal.clone())).unwrap();
    let command = ClientCommand::post(format!("{origin}/payments")).intent("invoice 4711");
    assert_eq!(client.send(command).await.unwrap().kind(), "final");
    assert_eq!(journal.pending().unwrap()[0].key.as_str(), "a-key-of-a-newer-command");
}
