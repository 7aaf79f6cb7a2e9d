/** A certificate that nobody vouches for, made for one test: the smallest DER that TLS takes. */

import { generateKeyPairSync, sign } from "node:crypto";

/** Wraps content in a DER tag and its length. */
function der(tag: number, ...content: Buffer[]): Buffer {
  const body = Buffer.concat(content);
  const { length } = body;
  const size =
    length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...size]), body]);
}

const SEQUENCE = 0x30;
const SET = 0x31;
const INTEGER = 0x02;
const BIT_STRING = 0x03;
const OBJECT_ID = 0x06;
const UTF8 = 0x0c;
const UTC_TIME = 0x17;
/** ecdsa-with-SHA256 */
const ALGORITHM = der(SEQUENCE, der(OBJECT_ID, Buffer.from("2a8648ce3d040302", "hex")));
/** commonName */
const COMMON_NAME = der(OBJECT_ID, Buffer.from("550403", "hex"));

/** Returns a new key, and a certificate that it signs itself. */
export function selfSigned(): { key: string; cert: string } {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const name = der(SEQUENCE, der(SET, der(SEQUENCE, COMMON_NAME, der(UTF8, Buffer.from("localhost")))));
  const times = ["200101000000Z", "491231235959Z"].map((time) => der(UTC_TIME, Buffer.from(time)));
  const spki = publicKey.export({ type: "spki", format: "der" });
  const content = der(
    SEQUENCE,
    der(INTEGER, Buffer.from([1])),
    ALGORITHM,
    name,
    der(SEQUENCE, ...times),
    name,
    spki,
  );
  const signature = der(BIT_STRING, Buffer.from([0]), sign("sha256", content, privateKey));
  const whole = der(SEQUENCE, content, ALGORITHM, signature).toString("base64");
  return {
    key: privateKey.export({ type: "pkcs8", format: "pem" }) as string,
    cert: `-----BEGIN CERTIFICATE-----\n${whole}\n-----END CERTIFICATE-----\n`,
  };
}
