// Express, with the routes that the test protects. `node express_service.mjs PACKAGE` prints its port. Each answer names the route that was
// reached; `GET /seen` lists the cases that came here at all.
const { default: express } = await import(process.argv[2]);
const app = express();
const seen = [];
app.use((request, _, next) => {
  if (request.headers["x-case"]) seen.push(request.headers["x-case"]);
  next();
});
for (const [name, path] of JSON.parse(process.argv[3])) {
  app.put(path.replace(/\{(\w+)\}/g, ":$1"), (_, answer) => answer.set("x-route", name).end());
}
app.get("/seen", (_, answer) => answer.json(seen));
const server = app.listen(0, "127.0.0.1", () => console.log(server.address().port));
