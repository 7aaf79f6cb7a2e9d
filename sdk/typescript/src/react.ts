/** The double-submit helper for React: `useOnce(client, intent)`. */

import { useSyncExternalStore } from "react";

import type { Client } from "./client.js";
import {
  IDLE,
  submissionOf,
  type Submission,
  type SubmissionOptions,
  type SubmissionState,
} from "./submission.js";

export type { Submission, SubmissionInit, SubmissionOptions, SubmissionState } from "./submission.js";

/** A submission as a component sees it. */
export type OnceState = SubmissionState & Pick<Submission, "submit" | "again" | "abandon">;

/**
 * Returns the submission of an intent, and renders again as it changes. `submit` takes its lock when it is called, not
 * with the next rendering. The submission belongs to the page: a component that is mounted again finds it under way.
 */
export function useOnce(client: Client, intent: string, options: SubmissionOptions = {}): OnceState {
  const submission = submissionOf(client, intent, options);
  const state = useSyncExternalStore(submission.subscribe, submission.state, idle);
  const { submit, again, abandon } = submission;
  return { ...state, submit, again, abandon };
}

/** A server has no submissions. */
function idle(): SubmissionState {
  return IDLE;
}
