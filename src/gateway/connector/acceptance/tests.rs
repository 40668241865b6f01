//! What follows from servers' verdicts, and when they are asked.

use super::*;
use crate::connector::test_authority::certified;
use base::telemetry::{CapturedLog, recorder};

/// An acceptance of several servers, the certificate in its files, and the time.
struct Scene {
    acceptance: Acceptance,
    cluster: ConnectionCloser,
    in_use: Arc<Presented>,
    in_files: Arc<CertifiedKey>,
    members: Vec<bool>,
    now: Instant,
}

impl Scene {
    /// Servers that accept the first certificate.
    fn accepted(servers: usize) -> Self {
        let (cluster, in_files) = (ConnectionCloser::default(), certified("first"));
        let (in_use, names) = (Presented::new(in_files.clone()), vec!["server".to_owned(); servers]);
        let acceptance = Acceptance::new(names, true, in_use.clone(), cluster.clone());
        let scene = Self { acceptance, cluster, in_use, in_files, members: vec![true; servers], now: Instant::now() };
        (0..servers).for_each(|server| scene.note(server, &Verdict::Accepted));
        scene
    }

    fn note(&self, server: usize, verdict: &Verdict) {
        self.acceptance.note(server, verdict, self.now);
    }

    fn due_after(&mut self, pause: Duration) -> (Vec<usize>, bool) {
        self.now += pause;
        self.acceptance.due(&self.in_files, &self.members, self.now)
    }

    /// All servers say this of the certificate in the files, when they are asked after a pause.
    fn judge_after(&mut self, pause: Duration, verdicts: &[Verdict]) {
        assert!(self.due_after(pause).1);
        self.acceptance.judge(self.in_files.clone(), "client.crt", verdicts, self.now);
    }

    /// Whether a connection to a server that is opened now is broken later.
    fn open(&self, server: usize) -> impl Fn() -> bool + use<> {
        let tokens = [self.in_use.token(), self.acceptance.token(server)];
        move || tokens.iter().any(CancellationToken::is_cancelled)
    }
}

fn refused() -> Verdict {
    Verdict::Refused(NotBelieved::Another("admin".to_owned()))
}

fn doubtful() -> Verdict {
    Verdict::Doubtful("everything is allowed".to_owned())
}

fn undecided() -> Verdict {
    Verdict::Undecided("500".to_owned())
}

/// Flags of an API server can change. An alert asks for the metric: a gateway that is not ready gets no requests that
/// could be counted.
#[test]
fn a_verdict_replaces_the_one_before_and_breaks_its_connections() {
    use AcceptanceState::{Accepted, Refused, Undecided};
    let (recorder, (log, _guard)) = (recorder(), CapturedLog::start());
    let _metrics = metrics::set_default_local_recorder(&recorder);
    let mut scene = Scene::accepted(1);
    assert_eq!(log.lines("the API server accepts the front-proxy certificate"), 1);
    for (verdict, expected, told) in [
        (Verdict::Accepted, Accepted, None),
        (undecided(), Accepted, None),
        (refused(), Refused, Some("front-proxy certificate not used")),
        (undecided(), Refused, None),
        (Verdict::Accepted, Accepted, Some("the API server accepts the front-proxy certificate")),
        // As of an older server that takes every client for the certificate's own user.
        (doubtful(), Undecided, Some("front-proxy certificate no longer used")),
        (refused(), Refused, Some("front-proxy certificate not used")),
    ] {
        let (before, is_broken) = (scene.acceptance.best(), scene.open(0));
        scene.note(0, &verdict);
        assert_eq!((scene.acceptance.best(), is_broken()), (expected, before != expected), "{verdict:?}");
        assert_eq!(scene.acceptance.check(0).is_ok(), expected == Accepted, "{verdict:?}");
        assert_eq!(log.lines(told.unwrap_or("front-proxy")), usize::from(told.is_some()), "{verdict:?}");
        scene.due_after(Duration::ZERO);
        let metric = "kube_fanout_upstream_front_proxy_accepted{server=\"server\"}";
        let line = format!("{metric} {}", u8::from(expected == Accepted));
        assert!(recorder.handle().render().lines().any(|known| known == line), "{verdict:?}");
    }
}

#[test]
fn a_server_is_asked_again_after_a_pause() {
    let (log, _guard) = CapturedLog::start();
    let (mut scene, told) = (Scene::accepted(1), "cannot check whether the API server accepts");
    // Ever less often without a verdict, which the log has once.
    for (verdict, seconds, lines) in [
        (Verdict::Accepted, 60, 0),
        (refused(), 10, 0),
        (doubtful(), 2, 1),
        (doubtful(), 4, 0),
        (undecided(), 4, 1),
        (undecided(), 4, 0),
    ] {
        scene.note(0, &verdict);
        assert_eq!(log.lines(told), lines, "{verdict:?}");
        assert!(scene.due_after(Duration::from_secs(seconds - 1)).0.is_empty(), "{verdict:?}");
        assert_eq!(scene.due_after(Duration::from_secs(1)).0, [0], "{verdict:?}");
    }
}

#[test]
fn another_cluster_has_shown_nothing() {
    let mut scene = Scene::accepted(2);
    let is_broken = scene.open(0);
    assert_eq!(scene.acceptance.all(), [0, 1]);
    scene.cluster.trip();
    scene.note(0, &Verdict::Accepted);
    scene.note(1, &refused());
    assert!(is_broken() && scene.acceptance.best() == AcceptanceState::Undecided, "the cluster before has said so");
    assert_eq!(scene.due_after(ACCEPTED).0, [0, 1]);
    scene.note(0, &Verdict::Accepted);
    assert_eq!((scene.acceptance.best(), scene.acceptance.others()), (AcceptanceState::Accepted, vec![1]));
}

#[test]
fn a_server_that_is_not_of_the_cluster_has_no_say() {
    let mut scene = Scene::accepted(2);
    let is_broken = [scene.open(0), scene.open(1)];
    scene.members[1] = false;
    assert!(scene.due_after(Duration::ZERO).0.is_empty());
    assert_eq!((is_broken.map(|is_broken| is_broken()), scene.acceptance.others()), ([false, true], vec![1]));
    scene.note(1, &Verdict::Accepted);
    assert_eq!(scene.acceptance.others(), [1]);
    scene.members[1] = true;
    assert_eq!(scene.due_after(Duration::ZERO).0, [1], "as soon as it is of the cluster");
}

#[test]
fn another_certificate_is_used_once_as_many_servers_accept_it() {
    let mut scene = Scene::accepted(3);
    (scene.members[2], scene.in_files) = (false, certified("next"));
    let (is_broken, first) = (scene.open(0), scene.in_use.current());
    // By one of two, and by one that is of another cluster.
    for verdicts in [[refused(), undecided(), Verdict::Accepted], [Verdict::Accepted, refused(), Verdict::Accepted]] {
        scene.judge_after(REFUSED, &verdicts);
        assert!(is_same(&scene.in_use.current(), &first) && !is_broken());
    }
    assert!(!scene.due_after(UNDECIDED_MAX).1, "only from time to time");
    scene.judge_after(REFUSED, &[Verdict::Accepted, Verdict::Accepted, refused()]);
    assert!(is_same(&scene.in_use.current(), &scene.in_files) && is_broken() && !scene.open(0)());
    assert_eq!((scene.acceptance.others(), scene.due_after(REFUSED)), (vec![2], (vec![], false)));
}

#[test]
fn servers_that_do_not_accept_the_certificate_that_is_used_now_are_set_back() {
    let mut scene = Scene::accepted(2);
    scene.in_files = certified("next");
    scene.note(1, &doubtful());
    assert_eq!(scene.due_after(Duration::ZERO), (vec![1], true), "it may accept the one in use");
    scene.note(1, &refused());
    let is_broken = scene.open(0);
    scene.judge_after(Duration::ZERO, &[undecided(), Verdict::Accepted]);
    assert!(is_broken() && scene.acceptance.others() == [0]);
}

/// An operator takes back a certificate that upstream does not accept. A server that cannot be asked for a moment must
/// not hide that it refuses the certificate.
#[test]
fn restored_files_break_no_connection_and_the_log_has_each_reason_once() {
    let (mut scene, (log, _guard)) = (Scene::accepted(1), CapturedLog::start());
    let (is_broken, first) = (scene.open(0), scene.in_use.current());
    scene.in_files = certified("next");
    for (verdict, lines) in [(undecided(), 1), (undecided(), 0), (refused(), 1), (refused(), 0)] {
        scene.judge_after(REFUSED, &[verdict]);
        assert_eq!(log.lines("new front-proxy certificate not used"), lines);
    }
    scene.in_files = first;
    assert!(!scene.due_after(REFUSED).1 && !is_broken() && log.lines("front-proxy") == 0);
    scene.in_files = certified("next");
    assert!(scene.due_after(Duration::ZERO).1, "at once");
}
