/** The double-submit helper for plain forms: `once(form, { client, … })`. */

import type { Client } from "./client.js";
import type { JournalEntry } from "./journal.js";
import {
  submissionOf,
  type Submission,
  type SubmissionInit,
  type SubmissionOptions,
  type SubmissionState,
} from "./submission.js";

export { submissionOf, MAX_SUBMISSIONS } from "./submission.js";
export type { Submission, SubmissionInit, SubmissionOptions, SubmissionState } from "./submission.js";

/** A form's request. */
export interface FormRequest {
  readonly input: string | URL;
  readonly init: SubmissionInit;
}

/** Options of `once`. */
export interface OnceOptions extends SubmissionOptions {
  /** The client, with a journal. */
  readonly client: Client;
  /**
   * What the form is for, such as `payment of order 17`: forms of one intent share a key until its outcome.
   * The default is the page's path with the form's id, name or action.
   */
  readonly intent?: string;
  /** Makes the request of the form. The default is the one that the browser would make. */
  readonly request?: (form: HTMLFormElement, submitter: HTMLElement | null) => FormRequest;
  /** Is told of each change. */
  readonly onChange?: (state: SubmissionState, form: HTMLFormElement) => void;
  /** Is told of a submission that was not sent, since the command is under way or done. */
  readonly onRepeat?: (state: SubmissionState, form: HTMLFormElement) => void;
  /** Is told, as the page begins, of a command of this intent whose outcome an earlier page did not get. */
  readonly onPending?: (entry: JournalEntry, form: HTMLFormElement) => void;
}

/** A form under control of `once`. */
export interface OnceForm extends Submission {
  /** The intent. */
  readonly intent: string;
  /** Gives the form back to the browser. */
  readonly stop: () => void;
}

/**
 * Sends a form's command once. Each submission of the form is taken over; the lock is taken in the event itself. After
 * a success the form is not sent again until it is edited or reset, or `again` is called; with `remember`, only `again`
 * allows another command.
 */
export function once(form: HTMLFormElement, options: OnceOptions): OnceForm {
  const { client, request = browserRequest, onChange, onRepeat, onPending } = options;
  if (options.request === undefined && methodOf(form, null) !== "POST") throw noCommand(form);
  const intent = options.intent ?? intentOf(form);
  const submission = submissionOf(client, intent, options);
  const onSubmit = (event: SubmitEvent): void => {
    event.preventDefault();
    const { status } = submission.state();
    // The form is read in the event, so that later edits do not change the request.
    const isTaken = status === "sending" || status === "done";
    const made = isTaken ? undefined : request(form, event.submitter);
    const submitted = made === undefined ? undefined : submission.submit(made.input, made.init);
    if (submitted === undefined) onRepeat?.(submission.state(), form);
  };
  const onEdit = (): void => {
    // What happens once is not another command because its form was filled in anew.
    if (options.remember === undefined && submission.state().status === "done") submission.again();
  };
  const show = (): void => {
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

async function tellPending(
  client: Client,
  intent: string,
  tell: (entry: JournalEntry) => void,
): Promise<void> {
  // A journal that cannot be read says so with the first submission.
  const entries = await client.pending().catch(() => []);
  const entry = entries.find((one) => one.intent === intent);
  if (entry !== undefined) tell(entry);
}

/** Returns the page's path with the form's id, name or action. */
function intentOf(form: HTMLFormElement): string {
  const names = ["id", "name", "action"].map((name) => form.getAttribute(name));
  const name = names.find((one) => one !== null && one !== "") ?? "";
  return `${form.ownerDocument.location.pathname}#${name}`;
}

/** Makes the request that the browser would make for a form, with its fields as they are now. */
function browserRequest(form: HTMLFormElement, submitter: HTMLElement | null): FormRequest {
  const { baseURI, defaultView } = form.ownerDocument;
  const method = methodOf(form, submitter);
  if (method !== "POST") throw noCommand(form);
  const input = new URL(attributeOf(form, submitter, "action") ?? "", baseURI);
  const data = new (defaultView ?? globalThis).FormData(form, submitter);
  const isMultipart = attributeOf(form, submitter, "enctype")?.toLowerCase() === "multipart/form-data";
  if (isMultipart) return { input, init: { method, body: data } };
  const pairs = [...data].map(([name, value]) => [name, typeof value === "string" ? value : value.name]);
  return { input, init: { method, body: new URLSearchParams(pairs) } };
}

function methodOf(form: HTMLFormElement, submitter: HTMLElement | null): string {
  return (attributeOf(form, submitter, "method") ?? "get").toUpperCase();
}

/** Reads an attribute, since a field named `action` hides the form's property. A button's own wins. */
function attributeOf(form: HTMLFormElement, submitter: HTMLElement | null, name: string): string | null {
  return submitter?.getAttribute(`form${name}`) ?? form.getAttribute(name);
}

function noCommand(form: HTMLFormElement): Error {
  return new Error(`a form of method ${methodOf(form, null)} is no command: its method must be post`);
}
