//! Bounds the memory of answers, in total and per client.
//!
//! Clients that do not read hold what they have taken, and enough of them hold all that is shared. So two parts of the
//! total are reserved for clients that hold little: one for answers on their way, and one for what watches hold as long
//! as they are open. They count apart, so that a client with thousands of watches, such as the service account of a
//! DaemonSet, reads on as one with none, whatever the others do; and watches never take the room of answers.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use bytes::Bytes;
use dashmap::{DashMap, Entry};

use super::ClientKey;
use crate::telemetry::{limit_reached, show_limit};

/// The bytes that answers from memory hold for themselves: copies, pieces on their way, compressors, selectors. Bytes
/// shared with the caches do not count. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ByteBudget(Arc<All>);

/// The room of one client's answers. Cheap to clone, and small: every watch has one.
#[derive(Clone, Debug)]
pub struct ClientByteBudget {
    all: ByteBudget,
    /// `None` if clients are not told apart.
    client: Option<ClientKey>,
}

/// The limits in bytes, and what is held.
#[derive(Debug)]
struct All {
    most: AtomicU64,
    each: AtomicU64,
    /// Whether clients are told apart, so that parts are reserved.
    is_divided: bool,
    /// What is held of the part that is not reserved.
    shared: AtomicU64,
    /// What is held of the reserves, by [`Use`].
    reserved: [AtomicU64; 2],
    /// What each client holds of all parts, by [`Use`]. Clients that hold nothing have no entry.
    clients: DashMap<ClientKey, [u64; 2]>,
}

/// What the room is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Answers on their way, until the client has read them.
    Answer,
    /// What a watch holds as long as it is open.
    Watch,
}

/// The part of the total that bytes are taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Shared,
    Reserve,
}

/// One part of this many of the total is reserved for answers, and as much for watches.
const RESERVES: u64 = 8;
/// A client whose answers hold less than this takes from their reserve. Enough for the pieces of a few answers on their
/// way.
const LITTLE: u64 = 1 << 20;
/// Maximum number of bytes that are taken from the reserve of answers at once: more than an object has, which is sent
/// whole. So the answers of a client that takes from it hold less than 5 MiB.
const RESERVED_MAX: u64 = 4 << 20;
/// A client whose watches hold less than this takes from their reserve. Enough for 10,000 watches by the label
/// selectors of kube-proxy.
const LITTLE_WATCHES: u64 = 4 << 20;
/// Maximum number of bytes that are taken from the reserve of watches at once.
const RESERVED_WATCH_MAX: u64 = 64 << 10;

/// Room for a number of bytes, released on drop.
#[derive(Debug)]
pub struct ReservedBytes {
    all: Arc<All>,
    client: Option<ClientKey>,
    bytes: u64,
    used_for: Use,
    part: Part,
}

/// Bytes in the room that was taken for them.
struct Held {
    bytes: Vec<u8>,
    _room: ReservedBytes,
}

impl ByteBudget {
    /// Limits in bytes, in total and for each client.
    pub fn new(all: u64, each: u64) -> Self {
        Self::start(all, each, true)
    }

    /// One limit in bytes, for clients that are not told apart.
    pub fn undivided(all: u64) -> Self {
        Self::start(all, all, false)
    }

    fn start(most: u64, each: u64, is_divided: bool) -> Self {
        let (shared, reserved) = Default::default();
        let (most, each, clients) = (AtomicU64::new(most), AtomicU64::new(each), DashMap::new());
        let all = Arc::new(All { most, each, is_divided, shared, reserved, clients });
        let show = |limit, used: fn(&All) -> (u64, u64)| {
            let all = Arc::downgrade(&all);
            show_limit(limit, move || all.upgrade().map(|all| used(&all)));
        };
        show("answer_bytes", |all| (all.shared.load(Relaxed), all.shared_most()));
        if is_divided {
            show("reserved_answer_bytes", |all| (all.reserved(Use::Answer).load(Relaxed), all.reserve_most()));
            show("reserved_watch_bytes", |all| (all.reserved(Use::Watch).load(Relaxed), all.reserve_most()));
        }
        Self(all)
    }

    /// Sets the limits for answers from now on.
    pub fn set(&self, all: u64, each: u64) {
        self.0.most.store(all, Relaxed);
        self.0.each.store(each, Relaxed);
    }

    /// The room of that client's answers; `None` if clients are not told apart.
    pub fn of(&self, client: Option<ClientKey>) -> ClientByteBudget {
        ClientByteBudget { all: self.clone(), client }
    }
}

impl ClientByteBudget {
    /// Room for `bytes` of an answer on its way; `None` if there is none left.
    pub fn take(&self, bytes: usize) -> Option<ReservedBytes> {
        self.room(Use::Answer, bytes)
    }

    /// Room for `bytes` that a watch holds as long as it is open; `None` if there is none left.
    pub fn keep(&self, bytes: usize) -> Option<ReservedBytes> {
        self.room(Use::Watch, bytes)
    }

    fn room(&self, used_for: Use, bytes: usize) -> Option<ReservedBytes> {
        let Self { all: ByteBudget(all), client } = self;
        let (all, bytes) = (all.clone(), u64::try_from(bytes).ok()?);
        let (client, part) = match *client {
            _ if bytes == 0 => (None, Part::Shared),
            None => (None, all.part(None, used_for, bytes)?),
            Some(client) => (Some(client), all.part_for(client, used_for, bytes)?),
        };
        Some(ReservedBytes { all, client, bytes, used_for, part })
    }
}

impl All {
    /// Takes bytes for a client; `None` if there is no room.
    fn part_for(&self, client: ClientKey, used_for: Use, bytes: u64) -> Option<Part> {
        // Locks the client's entry.
        let entry = self.clients.entry(client);
        let mut held = match &entry {
            Entry::Occupied(held) => *held.get(),
            Entry::Vacant(_) => Default::default(),
        };
        if held.iter().sum::<u64>().saturating_add(bytes) > self.each.load(Relaxed) {
            limit_reached("client_answer_bytes");
            return None;
        }
        let held_for = &mut held[used_for as usize];
        let part = self.part(Some(*held_for), used_for, bytes)?;
        *held_for += bytes;
        drop(entry.insert(held));
        Some(part)
    }

    /// Takes bytes from what is shared, or from the reserve if the client holds little; `None` if there is no room.
    fn part(&self, held: Option<u64>, used_for: Use, bytes: u64) -> Option<Part> {
        if add(&self.shared, bytes, self.shared_most()) {
            return Some(Part::Shared);
        }
        if !held.is_some_and(|held| used_for.is_little(held, bytes)) {
            limit_reached("answer_bytes");
            return None;
        }
        if !add(self.reserved(used_for), bytes, self.reserve_most()) {
            match used_for {
                Use::Answer => limit_reached("reserved_answer_bytes"),
                Use::Watch => limit_reached("reserved_watch_bytes"),
            }
            return None;
        }
        Some(Part::Reserve)
    }

    fn reserved(&self, used_for: Use) -> &AtomicU64 {
        &self.reserved[used_for as usize]
    }

    /// What is reserved for each use.
    fn reserve_most(&self) -> u64 {
        self.reserve_of(self.most.load(Relaxed))
    }

    /// What is not reserved.
    fn shared_most(&self) -> u64 {
        // Loaded once: a reload of the configuration may change it meanwhile.
        let most = self.most.load(Relaxed);
        most - 2 * self.reserve_of(most)
    }

    fn reserve_of(&self, most: u64) -> u64 {
        if self.is_divided { most / RESERVES } else { 0 }
    }
}

/// Adds bytes to those that are held, unless these are more than `most` then.
fn add(held: &AtomicU64, bytes: u64, most: u64) -> bool {
    let sum = |held: u64| held.checked_add(bytes).filter(|sum| *sum <= most);
    held.fetch_update(Relaxed, Relaxed, sum).is_ok()
}

impl Use {
    /// Whether a client that holds that many bytes may take that many from the reserve.
    fn is_little(self, held: u64, bytes: u64) -> bool {
        let (little, most) = match self {
            Self::Answer => (LITTLE, RESERVED_MAX),
            Self::Watch => (LITTLE_WATCHES, RESERVED_WATCH_MAX),
        };
        held < little && bytes <= most
    }
}

impl ReservedBytes {
    /// Bytes that hold the room until the last reference to them is dropped, wherever they wait for the client.
    pub fn holding(self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Held { bytes, _room: self })
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for ReservedBytes {
    fn drop(&mut self) {
        let Self { all, client, bytes, used_for, part } = self;
        if let Some(client) = client
            && let Entry::Occupied(mut held) = all.clients.entry(*client)
        {
            held.get_mut()[*used_for as usize] -= *bytes;
            if *held.get() == [0, 0] {
                held.remove();
            }
        }
        let held = match part {
            Part::Shared => &all.shared,
            Part::Reserve => all.reserved(*used_for),
        };
        held.fetch_sub(*bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::recorder;

    const MIB: usize = 1 << 20;

    fn of(room: &ByteBudget, name: &str) -> ClientByteBudget {
        room.of(Some(ClientKey::of(&name)))
    }

    /// What is held of the shared part, of the reserve for answers, and of that for watches.
    fn held(room: &ByteBudget) -> [usize; 3] {
        let ByteBudget(all) = room;
        [&all.shared, &all.reserved[0], &all.reserved[1]].map(|held| usize::try_from(held.load(Relaxed)).unwrap())
    }

    /// How often each limit was reached while that ran.
    fn reached(run: impl FnOnce()) -> String {
        let recorder = recorder();
        metrics::with_local_recorder(&recorder, run);
        recorder
            .handle()
            .render()
            .lines()
            .filter_map(|line| line.strip_prefix("kube_fanout_limits_reached_total"))
            .collect()
    }

    #[test]
    fn one_client_leaves_room_for_others() {
        let room = ByteBudget::new(80 << 20, 50 << 20);
        let [jane, john] = ["jane", "john"].map(|name| of(&room, name));
        let watch = jane.keep(20 * MIB).expect("watches count, too");
        let first = jane.take(30 * MIB).expect("all that one client may have");
        assert!(jane.take(1).is_none() && jane.keep(1).is_none());
        assert!(jane.take(0).is_some() && jane.keep(0).is_some(), "what holds nothing needs no room");
        let second = john.take(10 * MIB).expect("the rest of what is not reserved");
        assert!(john.take(1).is_none(), "there is no more of it in all");
        drop((watch, first, second));
        room.set(16 << 20, 5);
        assert!(jane.take(6).is_none() && jane.keep(6).is_none() && jane.take(5).is_some());
        assert_eq!(held(&room), [0; 3]);
        assert!(room.0.clients.is_empty());
    }

    #[test]
    fn clients_that_are_not_told_apart_have_one_limit() {
        let room = ByteBudget::undivided(80 << 20);
        let anyone = room.of(None);
        let [answer, watch] = [anyone.take(70 * MIB), anyone.keep(10 * MIB)];
        assert!(answer.is_some() && watch.is_some());
        assert!(anyone.take(1).is_none() && anyone.keep(1).is_none());
        room.set(90 << 20, 5);
        assert!(anyone.take(10 * MIB).is_some());
        assert_eq!(held(&room), [80 * MIB, 0, 0]);
    }

    #[test]
    fn a_client_that_holds_little_takes_from_the_reserve() {
        let reserved = usize::try_from(RESERVED_MAX).unwrap();
        let room = ByteBudget::new(80 << 20, 80 << 20);
        let [hostile, jane, john] = ["hostile", "jane", "john"].map(|name| of(&room, name));
        let _unread = hostile.take(60 * MIB).expect("all that is not reserved");
        assert!(hostile.take(1).is_none() && hostile.take(0).is_some());
        assert!(jane.take(reserved + 1).is_none(), "too much at once");
        let pieces = [MIB - 1, reserved].map(|bytes| jane.take(bytes).expect("it holds little"));
        assert!(jane.take(1).is_none(), "it holds more than little");
        let others = john.take(reserved).expect("another client's");
        let third = of(&room, "third");
        assert!(third.take(reserved).is_none(), "the reserve is bounded");
        assert_eq!(held(&room), [60 * MIB, MIB - 1 + 2 * reserved, 0]);
        drop(pieces);
        assert!(third.take(reserved).is_some() && jane.take(reserved).is_some());
        drop(others);
        assert_eq!(held(&room), [60 * MIB, 0, 0]);
    }

    /// As the service account of a DaemonSet has them: two on each of 5,000 nodes.
    #[test]
    fn bytes_held_by_watches_do_not_use_the_reserve_of_answers() {
        const SELECTORS: usize = 320;
        let room = ByteBudget::new(256 << 20, 192 << 20);
        let [jane, john, hostile] = ["jane", "john", "hostile"].map(|name| of(&room, name));
        let watches: Vec<_> = (0..5000).map(|_| jane.keep(SELECTORS).expect("shared")).collect();
        let _unread = hostile.take((192 << 20) - 5000 * SELECTORS).expect("the rest of what is not reserved");
        assert!(jane.take(4 * MIB).is_some(), "no answer of hers is on its way");
        let more: Vec<_> = (0..5000).map(|_| jane.keep(SELECTORS).expect("reserved")).collect();
        assert_eq!(held(&room), [192 * MIB, 0, 5000 * SELECTORS]);
        let answer = jane.take(4 * MIB).expect("with all her watches");
        drop((watches, more, answer));

        // A client's watches take little more than 4 MiB, and those of all clients leave the answers' reserve alone.
        let piece = usize::try_from(RESERVED_WATCH_MAX).unwrap();
        let keep_all = |client: &ClientByteBudget| std::iter::from_fn(|| client.keep(piece)).collect::<Vec<_>>();
        let _shared = hostile.take(192 * MIB - held(&room)[0]).expect("her watches' room");
        assert!(jane.keep(piece + 1).is_none(), "too much at once");
        let first = keep_all(&jane);
        assert_eq!(first.len(), 4 * MIB / piece);
        let others: Vec<_> = (0..20).flat_map(|number| keep_all(&of(&room, &number.to_string()))).collect();
        assert_eq!(held(&room), [192 * MIB, 0, 32 * MIB]);
        assert!(john.keep(1).is_none() && john.take(4 * MIB).is_some());
        drop((first, others));
    }

    /// Whatever is counted was refused or delayed.
    #[test]
    fn a_limit_is_reached_if_there_is_no_room() {
        let room = ByteBudget::new(16 << 20, 14 << 20);
        let [hostile, other, jane] = ["hostile", "other", "jane"].map(|name| of(&room, name));
        let mut unread = Vec::new();
        let refused = |room: Option<ReservedBytes>| assert!(room.is_none());
        let text = reached(|| unread.extend([hostile.take(12 * MIB), jane.take(MIB), jane.keep(1)]));
        assert_eq!((text.as_str(), held(&room)), ("", [12 * MIB, MIB, 1]));
        assert_eq!(reached(|| refused(jane.take(1))), "{limit=\"answer_bytes\"} 1");
        assert_eq!(reached(|| refused(hostile.keep(3 * MIB))), "{limit=\"client_answer_bytes\"} 1");
        assert_eq!(reached(|| refused(other.take(MIB + 1))), "{limit=\"reserved_answer_bytes\"} 1");
        unread.extend((0..31).map(|_| other.keep(64 << 10)));
        assert_eq!(reached(|| refused(other.keep(64 << 10))), "{limit=\"reserved_watch_bytes\"} 1");
    }

    #[test]
    fn bytes_hold_their_room_until_the_last_of_them_is_gone() {
        let room = ByteBudget::undivided(10).of(None);
        let mut bytes = room.take(10).expect("all of it").holding(b"0123456789".to_vec());
        let sent = bytes.split_to(4);
        assert_eq!((&*sent, &*bytes), (&b"0123"[..], &b"456789"[..]));
        drop(bytes);
        assert!(room.take(1).is_none());
        drop(sent);
        assert!(room.take(10).is_some());
    }
}
