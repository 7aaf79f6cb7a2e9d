//! Phases on PostgreSQL alone: lost answers to COMMIT, work that ends its transaction, and executors that lose their
//! lease in the middle of their work.

use semel_core::{Decision, StateName};
use semel_flow::phases::PhaseTerms;
use semel_flow::{PgRun, Reply};
use semel_testkit::proxy::{Cut, FaultProxy, Matching};

use crate::lab::{Gate, Lab, Postgres, Saw, command, saw, stored};
use crate::rides::{Act, Phased, Provider, RIDE, Ride, resumed, written};

const HOUR: std::time::Duration = std::time::Duration::from_secs(3600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_commit_of_any_phase_leaves_one_ride_and_one_charge() {
    // The commits: the ride, the call that begins, its answer, the receipt.
    for number in 0..4 {
        for cut in [Cut::BeforeSent, Cut::AfterSent, Cut::AfterServerAnswered] {
            let (direct, provider) = (Postgres::new().await, Provider::start(false).await);
            let proxy = FaultProxy::before(&direct.database.url()).await.expect("a port is free");
            let lab = direct.through(&proxy.url(&direct.database.url())).await;
            let kept = lab.kept().await;
            proxy.cut_next(Matching::commit().skipping(number), cut);
            let rides = lab.rides(kept.store(), Ride::new(&provider));
            let first = saw(&rides.start(&command("key"), "ride 7").await);
            assert_eq!(proxy.cuts(), 1, "commit {number}");
            match first {
                Saw::Executed(201, _) => {}
                // A local phase that was not committed: its work is gone, so it is done again.
                Saw::RolledBack(500) if number == 0 => {
                    assert!(saw(&rides.start(&command("key"), "ride 7").await).executed());
                }
                Saw::Decided(Decision::Wait) if number == 3 => {
                    kept.shift_clock(HOUR);
                    let record = resumed(&[&rides], &kept, &command("key").scope.record_id()).await;
                    assert_eq!(stored(&record).0, 201);
                }
                other => panic!("commit {number}: {other:?}"),
            }
            assert_eq!((written(&lab).await, provider.counts()), ((1, 1, 1), (1, 1)), "commit {number}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_ends_its_transaction_itself_leaves_an_unknown() {
    for sql in ["COMMIT", "COMMIT; BEGIN", "ROLLBACK; BEGIN"] {
        let lab = Postgres::new().await;
        let kept = lab.kept().await;
        let code = move |mut run: PgRun, _| async move {
            run.local("ride_created", move |mut tx| async move {
                sqlx::raw_sql(RIDE).execute(&mut *tx).await?;
                sqlx::raw_sql(sql).execute(&mut *tx).await?;
                Ok(())
            })
            .await?;
            Ok(Reply::new(http::StatusCode::CREATED))
        };
        let rides = Postgres::with(lab.none(kept.store()), PhaseTerms::default(), code);
        let told = saw(&rides.start(&command("key"), "ride 7").await);
        assert_eq!(told, Saw::Decided(Decision::Reconcile), "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_swallows_an_error_is_rolled_back() {
    let lab = Postgres::new().await;
    let kept = lab.kept().await;
    let code = move |mut run: PgRun, _| async move {
        run.local("ride_created", |mut tx| async move {
            sqlx::raw_sql(RIDE).execute(&mut *tx).await?;
            let _ = sqlx::raw_sql("SELECT nothing FROM nowhere").execute(&mut *tx).await;
            Ok(())
        })
        .await?;
        Ok(Reply::new(http::StatusCode::CREATED))
    };
    let rides = Postgres::with(lab.none(kept.store()), PhaseTerms::default(), code);
    assert_eq!(saw(&rides.start(&command("key"), "ride 7").await), Saw::RolledBack(500));
    assert_eq!(written(&lab).await, (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_work_of_an_executor_that_was_given_up_is_rolled_back() {
    let (lab, provider) = (Postgres::new().await, Provider::start(true).await);
    let kept = lab.kept().await;
    let gate = Gate::new();
    let held = gate.clone();
    let what = Ride::new(&provider).once("in the ride", move || Act::Wait(held.clone()));
    let rides = lab.rides(kept.store(), what);
    let first = tokio::spawn({
        let rides = rides.clone();
        async move { saw(&rides.start(&command("key"), "ride 7").await) }
    });
    gate.begun().await;
    // Its row is in an open transaction. Another executor does the work, and all the rest.
    kept.shift_clock(HOUR);
    let record = resumed(
        &[&lab.second().await.rides(kept.store(), Ride::new(&provider))],
        &kept,
        &command("key").scope.record_id(),
    )
    .await;
    assert_eq!((record.head.state.name(), record.head.epoch), (StateName::Succeeded, 2));
    gate.open();
    assert!(first.await.expect("it ends").replayed(), "it gets the record's truth");
    assert_eq!((written(&lab).await, provider.counts()), ((1, 1, 1), (1, 1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_renewed_while_long_work_runs() {
    let (lab, provider) = (Postgres::new().await, Provider::start(true).await);
    let kept = lab.kept().await;
    let gate = Gate::new();
    let held = gate.clone();
    let what = Ride::new(&provider).once("in the ride", move || Act::Wait(held.clone()));
    let rides = lab.rides(kept.store(), what);
    let short =
        crate::lab::command_with("key", |policy| policy.lease = std::time::Duration::from_millis(600));
    let first = tokio::spawn({
        let (rides, short) = (rides.clone(), short.clone());
        async move { saw(&rides.start(&short, "ride 7").await) }
    });
    gate.begun().await;
    crate::rides::until(&kept, &short.scope.record_id(), |record| {
        record.history.steps().any(|step| step.again.is_some_and(|(times, _)| times > 4))
    })
    .await;
    gate.open();
    assert!(first.await.expect("it ends").executed(), "its own work does not hold up its renewals");
}
