// The tree SM → block → warp, and its visible rows, each with its height.

export const DENSITIES = {
  compact: { sm: 6, block: 9, lane: 10, label: 10 },
  normal: { sm: 22, block: 18, lane: 16, label: 12 },
  tall: { sm: 44, block: 32, lane: 20, label: 13 },
};

export class RowTree {
  constructor(trace, info) {
    this.trace = trace;
    this.roots = [];
    this.leaf = new Array(trace.tracks.count);
    const { tracks } = trace;
    const several = (name) => new Set(tracks[name]).size > 1;
    const [ranks, devices, launches, lanes] = ["rank", "device", "launch", "lane"].map(several);
    const order = [...tracks.rank.keys()].sort(
      (a, b) =>
        tracks.rank[a] - tracks.rank[b] || tracks.device[a] - tracks.device[b] || tracks.sm[a] - tracks.sm[b] ||
        tracks.launch[a] - tracks.launch[b] || tracks.block[a] - tracks.block[b] || tracks.warp[a] - tracks.warp[b] ||
        tracks.lane[a] - tracks.lane[b],
    );
    const known = new Map();
    const node = (kind, key, label, parent) => {
      if (known.has(key)) return known.get(key);
      const made = { kind, key, label, parent, children: [], tracks: [], open: false, slots: null };
      (parent ? parent.children : this.roots).push(made);
      known.set(key, made);
      return made;
    };
    for (const t of order) {
      const where = `${ranks ? `rank ${tracks.rank[t]} ` : ""}${devices ? `device ${tracks.device[t]} ` : ""}`;
      const sm = node("sm", `${tracks.rank[t]}/${tracks.device[t]}/${tracks.sm[t]}`, `${where}SM ${tracks.sm[t]}`, null);
      const launch = launches ? `${info.kernels[tracks.kernel[t]]} #${tracks.launch[t]} ` : "";
      const blockKey = `${tracks.rank[t]}/${tracks.device[t]}/${tracks.sm[t]}/${tracks.launch[t]}/${tracks.block[t]}`;
      const block = node("block", blockKey, `${launch}block ${tracks.block[t]}`, sm);
      const lane = lanes ? ` lane ${tracks.lane[t]}` : "";
      const warp = node("warp", `track ${t}`, `warp ${tracks.warp[t]}${lane}`, block);
      for (const each of [sm, block, warp]) each.tracks.push(t);
      this.leaf[t] = warp;
    }
  }

  // Open everything if there are few tracks; otherwise open one SM and one block as an example.
  openFirst(keep = () => true, most = 24) {
    const kept = (node) => node.tracks.some(keep);
    const all = this.trace.tracks.count <= most;
    const sms = this.roots.filter(kept);
    for (const sm of all ? sms : sms.slice(0, 1)) {
      const blocks = sm.children.filter(kept);
      sm.open = true;
      for (const block of all ? blocks : blocks.slice(0, 1)) block.open = true;
    }
  }

  openAll(open) {
    for (const sm of this.roots) {
      sm.open = open;
      for (const block of sm.children) block.open = open;
    }
  }

  // The nodes that are open, and how to open just these again.
  opened() {
    return this.roots.flatMap((sm) => [sm, ...sm.children]).filter((node) => node.open);
  }

  reopen(nodes) {
    this.openAll(false);
    for (const node of nodes) node.open = true;
  }

  // Open the nodes that are open in the tree of an earlier trace of the same program.
  openAs(earlier) {
    const open = new Set(earlier.opened().map((node) => node.key));
    for (const sm of this.roots) for (const node of [sm, ...sm.children]) node.open = open.has(node.key);
  }

  // `keep(track)` says whether a track passes the filters; `lines(track)` is its number of nesting levels.
  layout(density, keep, lines) {
    const size = DENSITIES[density];
    const rows = [];
    let top = 0;
    const visit = (node, level) => {
      const tracks = node.tracks.filter(keep);
      if (!tracks.length) return;
      const height = node.kind === "warp" ? lines(tracks[0]) * size.lane + 5 : size[node.kind] + (density === "compact" ? 1 : 4);
      const row = { node, level, top, height, tracks, pad: density === "compact" ? 0 : 2 };
      rows.push(row);
      top += height;
      if (node.open) for (const child of node.children) visit(child, level + 1);
    };
    for (const root of this.roots) visit(root, 0);
    const rowOf = new Map(rows.map((row) => [row.node, row]));
    return { rows, rowOf, height: top, lane: size.lane, label: size.label };
  }

  // Call after a filter changed the tracks of a row.
  forgetSlots() {
    for (const sm of this.roots) for (const node of [sm, ...sm.children]) node.slots = null;
  }

  // The slots of a row: tracks that never run at the same time share one.
  slots(row) {
    const { node, tracks } = row;
    if (node.slots) return node.slots;
    const { begin, end, warp } = this.trace.tracks;
    const list = [];
    const free = [];
    for (const t of [...tracks].sort((a, b) => begin[a] - begin[b] || warp[a] - warp[b])) {
      let slot = free.findIndex((until) => until <= begin[t]);
      if (slot < 0) slot = free.push(0) - 1;
      free[slot] = end[t];
      (list[slot] ??= []).push(t);
    }
    node.slots = list;
    return list;
  }
}

// The row that shows a track: its own, or that of its closed block or SM.
export function rowOfTrack(tree, layout, track) {
  let node = tree.leaf[track];
  for (let up = node.parent; up; up = up.parent) if (!up.open) node = up;
  return layout.rowOf.get(node);
}
