//! A list as a body, made in pieces while it is sent.

use std::{mem, sync::Arc, vec};

use bytes::Bytes;

use super::{chunk::PIECE, indented::Indent};
use engine::{
    encode::{Form, LeafChunk, Pretty},
    store::{Leaf, Thaw},
};

/// The message of a panic that cannot happen: a leaf's items, or a Table's rows, are only made after their length was
/// computed, which fails if they cannot be made.
pub(super) const CAN_BE_MADE: &str = "items whose length is known can be made";

/// A list in pieces: head, leaves, tail. Only head and tail are owned; the leaves are shared.
#[derive(Debug)]
pub struct ListBody {
    head: Bytes,
    leaves: vec::IntoIter<Arc<Leaf>>,
    /// A leaf that was sent partly, and the number of its next item.
    begun: Option<(Arc<Leaf>, usize)>,
    thaw: Thaw,
    /// The rest of a large object that was sent partly.
    shared: Bytes,
    form: Form,
    is_first: bool,
    tail: Bytes,
    /// The length of the whole list in bytes, before indentation.
    length: usize,
    /// Boxed, because most lists are not indented.
    indent: Option<Box<Indent>>,
}

impl ListBody {
    /// A list between `head` and `tail`. The items of `leaves` have `items_len` bytes in total in that form.
    pub(super) fn new(
        head: Bytes,
        tail: Bytes,
        leaves: Vec<Arc<Leaf>>,
        items_len: usize,
        form: Form,
        pretty: bool,
    ) -> Self {
        // The separator in front of the first item is not sent.
        let length = head.len() + items_len.saturating_sub(form.separator_len()) + tail.len();
        let (leaves, indent) = (leaves.into_iter(), pretty.then(Box::default));
        let (shared, thaw) = Default::default();
        Self { head, leaves, begun: None, thaw, shared, form, is_first: true, tail, length, indent }
    }

    pub(super) fn own_bytes(&self) -> usize {
        let leaf = |leaf: &Arc<Leaf>| size_of::<Arc<Leaf>>() + leaf.own_bytes();
        let leaves = self.leaves.as_slice().iter().map(leaf).sum::<usize>();
        self.head.len() + self.tail.len() + leaves + 2 * PIECE
    }

    /// The bytes of the largest leaf that was made for this list alone.
    pub(super) fn own_leaf_max(&self) -> usize {
        self.leaves.as_slice().iter().filter(|leaf| leaf.is_private()).map(|leaf| leaf.bytes()).max().unwrap_or(0)
    }

    pub(super) fn is_pretty(&self) -> bool {
        self.indent.is_some()
    }

    pub(super) fn form(&self) -> &Form {
        &self.form
    }

    pub(super) fn tail(&self) -> &Bytes {
        &self.tail
    }

    /// The part before the leaves, on the first call.
    pub(super) fn take_head(&mut self) -> Option<Bytes> {
        Some(mem::take(&mut self.head)).filter(|head| !head.is_empty())
    }

    /// The next leaf, and whether it is the first one.
    pub(super) fn next_leaf(&mut self) -> Option<(Arc<Leaf>, bool)> {
        let leaf = self.leaves.next()?;
        Some((leaf, mem::take(&mut self.is_first)))
    }

    /// Whether the next leaf has not been compressed yet.
    pub(super) fn is_next_uncompressed(&self) -> bool {
        let next = self.leaves.as_slice().first();
        next.is_some_and(|leaf| leaf.deflated_now(self.form.representation()).is_none())
    }

    /// Whether the body has more than `limit` bytes. Must be called before anything is sent. Indentation only makes the
    /// body longer.
    pub(super) fn is_longer_than(&self, limit: usize) -> bool {
        self.length > limit || self.is_pretty() && self.indented_len() > limit as u64
    }

    fn indented_len(&self) -> u64 {
        let items = self.leaves.as_slice().iter().map(|leaf| self.form.leaf_items_once(leaf).expect(CAN_BE_MADE));
        let items = items.enumerate().map(|(at, items)| if at == 0 { self.first(&items) } else { items });
        let pieces = [self.head.clone()].into_iter().chain(items).chain([self.tail.clone()]);
        let mut pretty = Pretty::default();
        pieces.map(|piece| pretty.count(&piece)).fold(0, u64::saturating_add)
    }

    /// The first leaf's items without the separator in front of them.
    fn first(&self, items: &Bytes) -> Bytes {
        items.slice(self.form.separator_len()..)
    }

    pub(super) fn next(&mut self) -> Option<Bytes> {
        let Some(mut indent) = self.indent.take() else { return self.next_chunk() };
        let piece = indent.next(|| self.next_chunk());
        self.indent = Some(indent);
        piece
    }

    fn next_chunk(&mut self) -> Option<Bytes> {
        if let Some(head) = self.take_head() {
            return Some(head);
        }
        if !self.shared.is_empty() {
            return Some(mem::take(&mut self.shared));
        }
        let begun = self.begun.take().map(|begun| (begun, false));
        let next = begun.or_else(|| self.next_leaf().map(|(leaf, is_first)| ((leaf, 0), is_first)));
        let Some(((leaf, at), is_first)) = next else {
            return Some(mem::take(&mut self.tail)).filter(|tail| !tail.is_empty());
        };
        let LeafChunk { bytes: items, shared, next } =
            self.form.leaf_chunk(&leaf, at, &mut self.thaw).expect(CAN_BE_MADE);
        self.shared = shared;
        if next < leaf.objects().len() {
            self.begun = Some((leaf, next));
        }
        Some(if is_first { self.first(&items) } else { items })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{
        encode::compress,
        store::{Object, Schema, Shape},
    };

    fn objects(sizes: &[usize]) -> Vec<Arc<Object>> {
        let schema = Schema::new(Shape::Custom, Vec::new());
        let object = |(at, size): (usize, &usize)| {
            let text = "x".repeat(*size);
            let json = format!(r#"{{"metadata":{{"name":"n{at}","resourceVersion":"7"}},"text":"{text}"}}"#);
            Arc::new(Object::from_event(json.into(), &schema).unwrap())
        };
        sizes.iter().enumerate().map(object).collect()
    }

    #[test]
    fn a_piece_of_a_selected_list_inflates_one_block() {
        let (objects, form) = (objects(&[1000; 6]), Form::Whole(Shape::Custom));
        for neighbours in objects.chunks(2) {
            compress(&Leaf::of(neighbours.to_vec()), &Shape::Custom);
        }
        let leaf = Arc::new(Leaf::of(objects.clone()));
        let items_len = form.leaf_items_len(&leaf).unwrap();
        let mut list = ListBody::new(Bytes::new(), Bytes::new(), vec![leaf], items_len, form.clone(), false);
        let pieces: Vec<_> = std::iter::from_fn(|| list.next()).collect();
        assert_eq!((pieces.len(), pieces.concat()), (3, form.items(objects.iter()).unwrap().to_vec()));
    }

    /// A client that does not read holds what it was sent: of an object of any size, no copy.
    #[test]
    fn a_large_object_is_sent_from_the_bytes_of_the_store() {
        let objects = objects(&[10, 2 * PIECE, 20 * PIECE, 30, PIECE / 2, PIECE / 2 + 1, 0]);
        let form = Form::Whole(Shape::Custom);
        let leaf = Arc::new(Leaf::of(objects.clone()));
        let items_len = form.leaf_items_len(&leaf).unwrap();
        let (head, tail) = (Bytes::from_static(b"["), Bytes::from_static(b"]"));
        let mut list = ListBody::new(head, tail, vec![leaf], items_len, form.clone(), false);
        let pieces: Vec<_> = std::iter::from_fn(|| list.next()).collect();
        let is_shared = |piece: &Bytes| objects.iter().any(|object| object.tail().as_ptr() == piece.as_ptr());
        assert_eq!(pieces.iter().filter(|piece| is_shared(piece)).count(), 2);
        assert!(pieces.iter().all(|piece| is_shared(piece) || piece.len() <= PIECE));
        let expected = [&b"["[..], &form.items(objects.iter()).unwrap(), b"]"].concat();
        assert!(pieces.concat() == expected);
    }
}
