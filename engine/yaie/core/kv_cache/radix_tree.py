"""The radix tree of the prefix cache: its edges are runs of whole pages.

The path from a salt's root to a node spells a token prefix and lists the pages with its keys and
values, as in RadixAttention (Zheng et al., 2023, arXiv 2312.07104). Edges are packed tokens (4
bytes each), so comparing and hashing run at memcmp speed.

    root(salt) ──[p0 p1 p2]── node ──[p3]── node      a sequence holds the deepest node it uses;
                               └────[p3' p4'] node     refs of a node = holders in its subtree

A node with refs > 0 is held. A node without refs is cached, and so are all nodes below it. Cached
leaves are evicted first, the least recently used leaf first. Only `RadixCache` uses this class; the
reference counts of the pages are in its `BlockPool`s.
"""

import heapq
from array import array
from collections.abc import Iterable, Iterator

TOKEN_BYTES = 4
Pages = tuple[list[int], ...]
"""One page list for each KV cache group, all of the same length."""


def pack(tokens: Iterable[int]) -> bytes:
    """Pack token ids into a key of the tree, `TOKEN_BYTES` each.

    Raises:
        OverflowError: a token id is negative or has more than 32 bits.

    """
    return array("I", tokens).tobytes()


def common_pages(left: bytes, right: bytes, page_bytes: int) -> int:
    """Number of leading whole pages that are equal in both keys, by bisection over slices."""
    low, high = 0, min(len(left), len(right)) // page_bytes
    while low < high:
        middle = (low + high + 1) // 2
        start, end = low * page_bytes, middle * page_bytes
        if left[start:end] == right[start:end]:
            low = middle
        else:
            high = middle - 1
    return low


class Node:
    """A node and the edge to it. Only the tree reads its fields; callers use it as a handle."""

    __slots__ = ("children", "key", "last_used", "pages", "parent", "refs")

    def __init__(self, parent: "Node | None", key: bytes, pages: Pages) -> None:
        self.parent = parent
        self.key = key
        self.pages = pages
        self.children: dict[bytes, Node] = {}
        self.refs = 0
        self.last_used = 0


class RadixTree:
    """Prefixes of committed pages for `n_groups` KV cache groups."""

    def __init__(self, page_size: int, n_groups: int = 1) -> None:
        self._page_bytes = page_size * TOKEN_BYTES
        self._n_groups = n_groups
        self._roots: dict[bytes, Node] = {}
        self._clock = 0
        self._serial = 0
        self._n_nodes = 0
        self._leaves: list[tuple[int, int, Node]] = []
        self.cached_pages = 0
        """Number of pages (in each group) of nodes without refs."""
        self.held_pages = 0
        """Number of pages (in each group) of nodes with refs."""

    def lookup(self, salt: str, key: bytes, max_pages: int) -> int:
        """Number of leading pages of `key` that are in the tree, at most `max_pages`. Changes
        nothing.
        """
        root = self._roots.get(_root_key(salt))
        return self._walk(root, key, max_pages)[1] if root else 0

    def find(self, salt: str, key: bytes) -> list[int]:
        """The pages of the first group that the tree has for the beginning of `key`. Changes
        nothing.
        """
        root = self._roots.get(_root_key(salt))
        if root is None:
            return []
        node, n_pages, _ = self._walk(root, key, len(key) // self._page_bytes)
        return self.pages(node)[0][:n_pages]

    def hold(self, salt: str, key: bytes, max_pages: int) -> tuple[Node, int]:
        """Hold the longest prefix of `key` in the tree, at most `max_pages` pages. Returns its node
        and its number of pages.
        """
        node, n_pages, inside = self._walk(self._root(_root_key(salt)), key, max_pages)
        if inside:
            node = self._split(node, inside)
        self._hold_path(node, None)
        return node, n_pages

    def hold_again(self, node: Node) -> None:
        """Add a hold to a node that is held already."""
        self._hold_path(node, None)

    def n_shared(self, node: Node) -> int:
        """Number of leading pages on the path of a held `node` that have another hold too."""
        return sum(len(step.pages[0]) for step in self._path(node) if step.refs > 1)

    def pages(self, node: Node) -> Pages:
        """The pages from the root to `node`, in order."""
        path = list(self._path(node))
        return tuple(
            [page for step in reversed(path) for page in step.pages[group]]
            for group in range(self._n_groups)
        )

    def insert(self, node: Node, key: bytes, pages: Pages) -> tuple[Node, int]:
        """Extend the path of a held `node` by whole pages; the hold moves to the new end.

        Returns the new end and the index of the first page that was added. For the pages before
        that index, the tree already has other pages with the same tokens.
        """
        end, known, inside = self._walk(node, key, len(key) // self._page_bytes)
        if inside:
            end = self._split(end, inside)
        if known * self._page_bytes < len(key):
            rest = key[known * self._page_bytes :]
            leaf = Node(end, rest, tuple(group[known:] for group in pages))
            end.children[rest[: self._page_bytes]] = leaf
            self.cached_pages += len(leaf.pages[0])
            self._n_nodes += 1
            end = leaf
        self._hold_path(end, node)
        return end, known

    def release(self, node: Node) -> None:
        """Remove one hold. Nodes without a hold stay cached until they are evicted."""
        self._clock += 1
        for step in self._path(node):
            step.refs -= 1
            step.last_used = self._clock
            if not step.refs:
                self._settle(step)

    def evict(self, n_pages: int) -> Pages:
        """Remove up to `n_pages` cached pages, least recently used leaves first. Returns the
        removed pages.
        """
        evicted = self._no_pages()
        missing = n_pages
        while missing > 0 and self._leaves:
            last_used, _, node = heapq.heappop(self._leaves)
            if node.refs or node.children or node.last_used != last_used:
                continue
            count = min(missing, len(node.pages[0]))
            self._trim(node, count, evicted)
            missing -= count
        return evicted

    def forget(self, node: Node) -> Pages:
        """Remove the nodes without refs at the end of `node`'s path, and all nodes below them.
        Returns their pages.
        """
        evicted = self._no_pages()
        top = None
        for step in self._path(node):
            if step.refs or step.parent is None:
                break
            top = step
        if top is not None:
            for step in reversed(list(_subtree(top))):
                self._trim(step, len(step.pages[0]), evicted)
        return evicted

    # -- inside -----------------------------------------------------------------------------

    def _no_pages(self) -> Pages:
        return tuple([] for _ in range(self._n_groups))

    def _root(self, salt: bytes) -> Node:
        """Get or create the root of a salt. Its key is the salt; it has no pages."""
        root = self._roots.get(salt)
        if root is None:
            root = self._roots[salt] = Node(None, salt, self._no_pages())
        return root

    def _walk(self, start: Node, key: bytes, max_pages: int) -> tuple[Node, int, int]:
        """Returns the deepest node reached, the number of pages matched, and how many of them are
        on that node's edge if the match ends inside it (else 0).
        """
        node, at = start, 0
        end = min(max_pages * self._page_bytes, len(key) - len(key) % self._page_bytes)
        while at < end:
            child = node.children.get(key[at : at + self._page_bytes])
            if child is None:
                break
            edge = child.key
            if at + len(edge) <= end and key.startswith(edge, at):
                node, at = child, at + len(edge)
                continue
            inside = common_pages(edge, key[at:end], self._page_bytes)
            return child, at // self._page_bytes + inside, inside
        return node, at // self._page_bytes, 0

    def _split(self, node: Node, n_pages: int) -> Node:
        """Split `node`'s edge after `n_pages` and return the new upper node. `node` is below it, so
        handles stay valid.
        """
        cut = n_pages * self._page_bytes
        upper = Node(node.parent, node.key[:cut], tuple(group[:n_pages] for group in node.pages))
        upper.refs, upper.last_used = node.refs, node.last_used
        parent = _parent(node)
        parent.children[upper.key[: self._page_bytes]] = upper
        node.key = node.key[cut:]
        node.pages = tuple(group[n_pages:] for group in node.pages)
        node.parent = upper
        upper.children[node.key[: self._page_bytes]] = node
        self._n_nodes += 1
        return upper

    def _path(self, node: Node) -> Iterator[Node]:
        step: Node | None = node
        while step is not None:
            yield step
            step = step.parent

    def _hold_path(self, node: Node, until: Node | None) -> None:
        """Add a hold to every node from `node` up to, not including, `until`."""
        for step in self._path(node):
            if step is until:
                break
            if not step.refs:
                self.cached_pages -= len(step.pages[0])
                self.held_pages += len(step.pages[0])
            step.refs += 1

    def _settle(self, node: Node) -> None:
        """Count the pages of `node`, which has just lost its last hold, as cached."""
        self.cached_pages += len(node.pages[0])
        self.held_pages -= len(node.pages[0])
        self._offer(node)

    def _offer(self, node: Node) -> None:
        """Queue a leaf without refs for eviction. Delete a root without refs and children now."""
        if node.refs or node.children:
            return
        if node.parent is None:
            del self._roots[node.key]
            return
        self._serial += 1
        heapq.heappush(self._leaves, (node.last_used, self._serial, node))
        if len(self._leaves) > 4 * self._n_nodes + 64:
            self._leaves = [entry for entry in self._leaves if _is_current(entry)]
            heapq.heapify(self._leaves)

    def _trim(self, leaf: Node, n_pages: int, evicted: Pages) -> None:
        """Remove the last pages of a leaf without refs. A leaf without pages is removed from the
        tree.
        """
        keep = len(leaf.pages[0]) - n_pages
        for group, pages in enumerate(leaf.pages):
            evicted[group].extend(pages[keep:])
            del pages[keep:]
        self.cached_pages -= n_pages
        if keep:
            leaf.key = leaf.key[: keep * self._page_bytes]
            self._offer(leaf)
            return
        parent = _parent(leaf)
        del parent.children[leaf.key[: self._page_bytes]]
        leaf.last_used = -1
        self._n_nodes -= 1
        self._offer(parent)

    def depths(self) -> dict[int, int]:
        """For checks: by page of the first group, the number of pages from its root to its end."""
        found: dict[int, int] = {}
        below = [(root, 0) for root in self._roots.values()]
        while below:
            node, depth = below.pop()
            found.update((page, depth + place) for place, page in enumerate(node.pages[0], 1))
            below += [(child, depth + len(node.pages[0])) for child in node.children.values()]
        return found

    def check(self) -> list[Pages]:
        """Raise AssertionError if an invariant is broken; return the pages of every node."""
        cached = held = n_nodes = 0
        found = []
        queued = {id(entry[2]) for entry in self._leaves if _is_current(entry)}
        for root in self._roots.values():
            _require(root.refs > 0 or bool(root.children), "an unused root stays")
            for node in _subtree(root):
                below = sum(child.refs for child in node.children.values())
                _require(node.refs >= below, "a node has fewer holds than its children")
                _require(node.refs > 0 or below == 0, "a held node hangs below a cached one")
                found.append(node.pages)
                if node is root:
                    continue
                n_nodes += 1
                size = len(node.pages[0])
                cached, held = cached + size * (not node.refs), held + size * bool(node.refs)
                self._check_edge(node)
                evictable = not node.refs and not node.children
                _require(evictable == (id(node) in queued), "eviction queue misses a leaf")
        _require((cached, held) == (self.cached_pages, self.held_pages), "page counts are off")
        _require(n_nodes == self._n_nodes, "node count is off")
        return found

    def _check_edge(self, node: Node) -> None:
        size = len(node.pages[0])
        _require(size > 0, "an empty edge stays")
        _require(all(len(group) == size for group in node.pages), "groups differ in length")
        _require(len(node.key) == size * self._page_bytes, "key and pages differ in length")
        first = node.key[: self._page_bytes]
        _require(_parent(node).children.get(first) is node, "a node is not under its first page")


def _root_key(salt: str) -> bytes:
    return salt.encode(errors="surrogatepass")


def _subtree(node: Node) -> Iterator[Node]:
    """`node` and all nodes below it, parents before children."""
    stack = [node]
    while stack:
        step = stack.pop()
        yield step
        stack.extend(step.children.values())


def _is_current(entry: tuple[int, int, Node]) -> bool:
    last_used, _, node = entry
    return not node.refs and not node.children and node.last_used == last_used


def _parent(node: Node) -> Node:
    if node.parent is None:
        raise AssertionError("a root has no parent")
    return node.parent


def _require(condition: bool, message: str) -> None:  # noqa: FBT001 - reads as an assertion
    if not condition:
        raise AssertionError(message)
