// Decode the columns that view/payload.py packs: base64 of one raw deflate stream of byte planes.

export async function inflate(base64) {
  const packed = fromBase64(base64);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
  return bytes;
}

export class Columns {
  constructor(bytes, manifest) {
    this.bytes = bytes;
    this.manifest = manifest;
  }

  count(name) {
    return this.manifest[name].count;
  }

  // Exact up to 2^53, which is 104 days in ns.
  ints(name) {
    const { at, count, planes } = this.manifest[name];
    const out = planes < 4 ? new Int32Array(count) : new Float64Array(count);
    if (planes < 4) {
      for (let plane = 0; plane < planes; plane++) {
        const from = at + plane * count;
        const shift = 8 * plane;
        for (let i = 0; i < count; i++) out[i] |= this.bytes[from + i] << shift;
      }
      for (let i = 0; i < count; i++) out[i] = (out[i] >>> 1) ^ -(out[i] & 1);
      return out;
    }
    for (let plane = planes - 1; plane >= 0; plane--) {
      const from = at + plane * count;
      for (let i = 0; i < count; i++) out[i] = out[i] * 256 + this.bytes[from + i];
    }
    for (let i = 0; i < count; i++) out[i] = out[i] % 2 ? -(out[i] + 1) / 2 : out[i] / 2;
    return out;
  }

  floats(name) {
    const { at, count } = this.manifest[name];
    return new Float64Array(this.bytes.buffer, this.bytes.byteOffset + at, count);
  }

  raw(name) {
    const { at, count } = this.manifest[name];
    return this.bytes.subarray(at, at + count);
  }
}
