/** The double-submit helper for plain forms: `once(form, { client, … })`. */
import { submissionOf, } from "./submission.js";
export { submissionOf, MAX_SUBMISSIONS } from "./submission.js";
/**
 * Sends a form's command once. Each submission of the form is taken over; the lock is taken in the event itself. After
 * a success the form is not sent again until it is edited or reset, or `again` is called; with `remember`, only `again`
 * allows another command.
 */
export function once(form, options) {
    const { client, request = browserRequest, onChange, onRepeat, onPending } = options;
    if (options.request === undefined && methodOf(form, null) !== "POST")
        throw noCommand(form);
    const intent = options.intent ?? intentOf(form);
    const submission = submissionOf(client, intent, options);
    const onSubmit = (event) => {
        event.preventDefault();
        const { status } = submission.state();
        // The form is read in the event, so that later edits do not change the request.
        const isTaken = status === "sending" || status === "done";
        const made = isTaken ? undefined : request(form, event.submitter);
        const submitted = made === undefined ? undefined : submission.submit(made.input, made.init);
        if (submitted === undefined)
            onRepeat?.(submission.state(), form);
    };
    const onEdit = () => {
        // What happens once is not another command because its form was filled in anew.
        if (options.remember === undefined && submission.state().status === "done")
            submission.again();
    };
    const show = () => {
        const state = submission.state();
        form.setAttribute("aria-busy", String(state.status === "sending"));
        onChange?.(state, form);
    };
    form.addEventListener("submit", onSubmit);
    form.addEventListener("input", onEdit);
    form.addEventListener("reset", onEdit);
    const unsubscribe = submission.subscribe(show);
    if (onPending !== undefined)
        void tellPending(client, intent, (entry) => {
            onPending(entry, form);
        });
    return {
        ...submission,
        intent,
        stop() {
            unsubscribe();
            form.removeEventListener("submit", onSubmit);
            form.removeEventListener("input", onEdit);
            form.removeEventListener("reset", onEdit);
        },
    };
}
async function tellPending(client, intent, tell) {
    // A journal that cannot be read says so with the first submission.
    const entries = await client.pending().catch(() => []);
    const entry = entries.find((one) => one.intent === intent);
    if (entry !== undefined)
        tell(entry);
}
/** Returns the page's path with the form's id, name or action. */
function intentOf(form) {
    const names = ["id", "name", "action"].map((name) => form.getAttribute(name));
    const name = names.find((one) => one !== null && one !== "") ?? "";
    return `${form.ownerDocument.location.pathname}#${name}`;
}
/** Makes the request that the browser would make for a form, with its fields as they are now. */
function browserRequest(form, submitter) {
    const { baseURI, defaultView } = form.ownerDocument;
    const method = methodOf(form, submitter);
    if (method !== "POST")
        throw noCommand(form);
    const input = new URL(attributeOf(form, submitter, "action") ?? "", baseURI);
    const data = new (defaultView ?? globalThis).FormData(form, submitter);
    const isMultipart = attributeOf(form, submitter, "enctype")?.toLowerCase() === "multipart/form-data";
    if (isMultipart)
        return { input, init: { method, body: data } };
    const pairs = [...data].map(([name, value]) => [name, typeof value === "string" ? value : value.name]);
    return { input, init: { method, body: new URLSearchParams(pairs) } };
}
function methodOf(form, submitter) {
    return (attributeOf(form, submitter, "method") ?? "get").toUpperCase();
}
/** Reads an attribute, since a field named `action` hides the form's property. A button's own wins. */
function attributeOf(form, submitter, name) {
    return submitter?.getAttribute(`form${name}`) ?? form.getAttribute(name);
}
function noCommand(form) {
    return new Error(`a form of method ${methodOf(form, null)} is no command: its method must be post`);
}
