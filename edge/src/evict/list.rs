//! Doubly linked lists of ids. The links of all lists are in one table, so moving an id takes O(1).

/// The value of a link that leads to no id.
const NONE: u32 = u32::MAX;

/// One row per id: its links, the number of its list, and data of the policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) weight: u64,
    pub(super) hash: u64,
    newer: u32,
    older: u32,
    /// Number of the list that contains the id, plus one; 0 if the id is in no list.
    list: u8,
    pub(super) uses: u8,
}

const VACANT: Node = Node {
    weight: 0,
    hash: 0,
    newer: NONE,
    older: NONE,
    list: 0,
    uses: 0,
};

/// `N` linked lists that share one table of nodes.
#[derive(Debug)]
pub(super) struct Lists<const N: usize> {
    nodes: Vec<Node>,
    lists: [List; N],
}

#[derive(Clone, Copy, Debug)]
struct List {
    newest: u32,
    oldest: u32,
    len: usize,
    weight: u64,
}

impl<const N: usize> Default for Lists<N> {
    fn default() -> Lists<N> {
        let empty = List {
            newest: NONE,
            oldest: NONE,
            len: 0,
            weight: 0,
        };
        Lists {
            nodes: Vec::new(),
            lists: [empty; N],
        }
    }
}

impl<const N: usize> Lists<N> {
    /// Returns the node of an id, if the id is in a list.
    #[inline]
    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Node> {
        self.nodes.get_mut(id as usize).filter(|node| node.list > 0)
    }

    /// Adds an id that is in no list, as the newest one of a list.
    pub(super) fn push(&mut self, list: usize, id: u32, hash: u64, weight: u64) {
        let index = id as usize;
        if index >= self.nodes.len() {
            self.nodes.resize(index + 1, VACANT);
        }
        let head = &mut self.lists[list];
        self.nodes[index] = Node {
            weight,
            hash,
            newer: NONE,
            older: head.newest,
            list: list as u8 + 1,
            uses: 0,
        };
        match head.newest {
            NONE => head.oldest = id,
            newest => self.nodes[newest as usize].newer = id,
        }
        head.newest = id;
        head.len += 1;
        head.weight = head.weight.saturating_add(weight);
    }

    /// Removes an id from its list. Returns its node.
    pub(super) fn remove(&mut self, id: u32) -> Option<Node> {
        let slot = self.nodes.get_mut(id as usize).filter(|n| n.list > 0)?;
        let node = std::mem::replace(slot, VACANT);
        let head = &mut self.lists[usize::from(node.list) - 1];
        match node.newer {
            NONE => head.newest = node.older,
            newer => self.nodes[newer as usize].older = node.older,
        }
        match node.older {
            NONE => head.oldest = node.newer,
            older => self.nodes[older as usize].newer = node.newer,
        }
        head.len -= 1;
        head.weight = head.weight.saturating_sub(node.weight);
        Some(node)
    }

    /// Removes the oldest id of a list. Returns the id and its node.
    pub(super) fn pop_oldest(&mut self, list: usize) -> Option<(u32, Node)> {
        let id = self.lists[list].oldest;
        self.remove(id).map(|node| (id, node))
    }

    /// Makes an id the newest one of its list.
    pub(super) fn renew(&mut self, id: u32) {
        let newest = self.lists.iter().any(|list| list.newest == id);
        if newest {
            return;
        }
        if let Some(node) = self.remove(id) {
            self.push(usize::from(node.list) - 1, id, node.hash, node.weight);
        }
    }

    /// Changes an id's weight.
    pub(super) fn resize(&mut self, id: u32, weight: u64) {
        let Some(node) = self.nodes.get_mut(id as usize).filter(|n| n.list > 0) else {
            return;
        };
        let head = &mut self.lists[usize::from(node.list) - 1];
        head.weight = head
            .weight
            .saturating_sub(node.weight)
            .saturating_add(weight);
        node.weight = weight;
    }

    /// Returns the number of ids in a list.
    pub(super) fn len(&self, list: usize) -> usize {
        self.lists[list].len
    }

    /// Returns the sum of the weights of the ids in a list.
    pub(super) fn weight(&self, list: usize) -> u64 {
        self.lists[list].weight
    }

    /// Returns the heap memory in bytes.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
    }
}
