// What `packed` of packed.py packed: {header, arrays}, every array a Uint8Array.

async function inflate(base64) {
  const binary = atob(base64.trim());
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function unpack(base64) {
  const bytes = await inflate(base64);
  let place = 4 + new DataView(bytes.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, place)));
  const arrays = header.arrays.map((length) => bytes.subarray(place, (place += length)));
  return { header, arrays };
}
