// Unpacks the browser into the folder that this runs in, where `cargo xtask browser` has put it and its packages.
// With its own libraries and a font, it runs on machines that have neither.
import { createReadStream, createWriteStream, writeFileSync } from "node:fs";
import { pipeline } from "node:stream/promises";
import { createBrotliDecompress } from "node:zlib";
import { extract } from "tar-fs";

const packed = "node_modules/@sparticuz/chromium/bin";

function unpack(name, to) {
  return pipeline(createReadStream(`${packed}/${name}.br`), createBrotliDecompress(), to);
}

await Promise.all([
  unpack("chromium", createWriteStream("chromium", { mode: 0o755 })),
  unpack("al2023.tar", extract("libraries")),
  unpack("fonts.tar", extract("fonts")),
  unpack("swiftshader.tar", extract(".")),
]);
writeFileSync(
  "fonts.conf",
  `<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir prefix="relative">fonts</dir><cachedir prefix="xdg">fonts</cachedir></fontconfig>
`,
);
