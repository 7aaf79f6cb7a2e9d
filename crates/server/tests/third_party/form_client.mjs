// Sends a form. `node form_client.mjs CLIENT ADDRESS KEY NOTE` prints the answer's status, mark and problem code. CLIENT is one of
// fetch-multipart, fetch-urlencoded, axios-multipart, axios-urlencoded.
import axios from "axios";

const [client, address, key, note] = process.argv.slice(2);
const url = `http://${address}/payments`;
const headers = { "Idempotency-Key": key };

function multipart() {
  const form = new FormData();
  form.append("note", note);
  form.append("file", new Blob(["a,b\r\n1,2\r\n"], { type: "text/csv" }), "ledger.csv");
  return form;
}

const urlencoded = new URLSearchParams([["note", note], ["amount", "5"]]);
const clients = {
  "fetch-multipart": () => fetch(url, { method: "POST", headers, body: multipart() }),
  "fetch-urlencoded": () => fetch(url, { method: "POST", headers, body: urlencoded }),
  "axios-multipart": () => axios.post(url, multipart(), { headers, validateStatus: null, responseType: "text" }),
  "axios-urlencoded": () => axios.post(url, urlencoded, { headers, validateStatus: null, responseType: "text" }),
};
const answer = await clients[client]();
const body = answer.data ?? (await answer.text());
const replayed = answer.headers.get("idempotency-replayed") ?? null;
const code = answer.status >= 400 ? JSON.parse(body).code : null;
console.log(JSON.stringify({ status: answer.status, replayed, code }));
