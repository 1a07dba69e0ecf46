// Package pagejson is the JSON of the page of package inspect, for the page's server and for
// programs of this repository that ask it. docs/operating.md describes it for others.
package pagejson

import "time"

// Overview is the answer to a GET of "limits": all limits, and their load of late.
type Overview struct {
	Now time.Time `json:"now"` // of this process
	// Tick numbers the last point of the limits. A GET of "limits?since=Tick" has only the
	// points after it.
	Tick uint64 `json:"tick"`
	// Every is the time between two points, in seconds.
	Every float64 `json:"every"`
	// Changes reports whether keys may be changed, with a token.
	Changes bool `json:"changes"`
	// Hashed reports whether keys are shown as hashes.
	Hashed bool           `json:"hashed"`
	Limits []LimitSummary `json:"limits"`
}

// LimitSummary is a limit in an Overview.
type LimitSummary struct {
	Name   string `json:"name"`
	Policy string `json:"policy"` // the limit as text: see policy.Parse
	Words  string `json:"words"`  // the limit in words
	Units  int64  `json:"units"`  // policy.Policy.Limit
	// Lists reports whether the limiter can tell which keys owe most, and which are refused
	// most. Keyless reports whether there is one key only, which is "".
	Lists   bool `json:"lists"`
	Keyless bool `json:"keyless"`
	// Verbs are the changes that the limiter offers: "reset", "charge", "block" and "lift".
	Verbs []string `json:"verbs"`
	// Health is what the limiter's Health says, and "" if that is in order. Trouble says why
	// some of what is here is missing: a function of the program has panicked, or did not answer.
	Health  string `json:"health,omitempty"`
	Trouble string `json:"trouble,omitempty"`
	// Use counts the keys of an engine by how much of their limit they have used. It is nil
	// until all have been counted for the first time.
	Use *KeysByUse `json:"use,omitempty"`
	// Trials are those of a limits.Trial, the outermost first.
	Trials []TrialSummary `json:"trials,omitempty"`
	// Figures are the counters: the exported fields of the limiter's Stats. Durations are in
	// seconds.
	Figures map[string]any `json:"figures"`
	Points  []Point        `json:"points"` // oldest first
}

// KeysByUse is engine.KeysByUse.
type KeysByUse struct {
	Age       float64 `json:"age"` // seconds since the count ended
	Unused    int     `json:"unused"`
	BelowHalf int     `json:"belowHalf"`
	Half      int     `json:"half"` // half or more, and less than 80%
	Most      int     `json:"most"` // 80% or more, and not all
	All       int     `json:"all"`
	Chosen    int     `json:"chosen"` // that have used some of a limit of their own
}

// TrialSummary is a candidate that is tried beside the live limiter, with the counters of
// limits.TrialStats.
type TrialSummary struct {
	Policy      string `json:"policy"` // the candidate's limit as text: see policy.Parse
	Admitted    uint64 `json:"admitted"`
	Refused     uint64 `json:"refused"`
	WouldRefuse uint64 `json:"wouldRefuse"`
	WouldAdmit  uint64 `json:"wouldAdmit"`
	Failed      uint64 `json:"failed"`
}

// Point is the load of a limit at one moment.
type Point struct {
	At int64 `json:"at"` // Unix time in milliseconds
	// Admitted and Refused are calls a second since the point before.
	Admitted float64 `json:"admitted"`
	Refused  float64 `json:"refused"`
	// Keys is the number of keys in the table. Of a limit without keys, Used is the share of
	// it that is used, 0 to 1.
	Keys int     `json:"keys"`
	Used float64 `json:"used"`
}

// List is the answer to a GET of "keys": a page of the keys that owe most ("by=owed"), or
// those that are refused most ("by=refused").
type List struct {
	Limit string `json:"limit"`
	By    string `json:"by"`
	Rows  []Row  `json:"rows"`
	// Total is how many keys owe something, on all pages together, or how often all keys were
	// refused in the time that the list covers.
	Total uint64 `json:"total"`

	// Next is the parameter "after" of the next page of "owed", and "" if there is none. A
	// page may have fewer rows than n although there is a next one.
	Next string `json:"next,omitempty"`
	// Age is how many seconds ago the figures of "owed" held. Pending reports that there are
	// none yet: the keys are being gone through, so ask again.
	Age     float64 `json:"age,omitempty"`
	Pending bool    `json:"pending,omitempty"`

	// For is how many seconds a list of "refused" covers, up to now. OthersMost is the most
	// refusals that a key can have had which is not in the list.
	For        float64 `json:"for,omitempty"`
	OthersMost uint64  `json:"othersMost,omitempty"`
}

// Row is a key in a List.
type Row struct {
	// ID names the key in other requests for as long as the handler remembers that it has
	// shown it. It is a keyed hash, and another one in each process.
	ID  string `json:"id"`
	Key string `json:"key,omitempty"` // as text, and "" if keys are hashed
	// Blocked is for how many more seconds the key is blocked.
	Blocked float64 `json:"blocked,omitempty"`

	// Of "owed": the share of its limit that the key has used, 0 to 1, the units that remain
	// to it, after how many seconds from now the next unit returns, -1 if never, and after
	// how many it owes nothing.
	Share     float64 `json:"share"`
	Remaining int64   `json:"remaining"`
	Returns   float64 `json:"returns"`
	Full      float64 `json:"full"`

	// Of "refused": how often the key was refused by estimate, between which bounds that is,
	// and how many seconds ago the last refusal was that the list knows of.
	Refused uint64  `json:"refused,omitempty"`
	Least   uint64  `json:"least,omitempty"`
	Most    uint64  `json:"most,omitempty"`
	Last    float64 `json:"last,omitempty"`
}

// KeyRequest is the body of a POST to "key", which explains a key, and part of a
// ChangeRequest. A key travels in the body, so that it is in no log of addresses.
type KeyRequest struct {
	Limit string `json:"limit"`
	// Key is the key as text, or ID that of a row. One of the two is set, unless the limit
	// has no keys.
	Key string `json:"key,omitempty"`
	ID  string `json:"id,omitempty"`
}

// ChangeRequest is the body of a POST to "change", which needs a token.
type ChangeRequest struct {
	KeyRequest
	// Do is "reset", which forgets what the key has used and lifts its block, "charge",
	// "block", or "lift", which lifts a block alone.
	Do string `json:"do"`
	// Units are charged, whether the limit allows them or not. Below 0 they are given back.
	Units int64 `json:"units,omitempty"`
	// For is how long a block lasts, such as "10m".
	For string `json:"for,omitempty"`
}

// Explanation is the answer to "key" and to "change": what holds for the key now, as
// limits.Explain says. Times are in seconds.
type Explanation struct {
	Limit string `json:"limit"`
	ID    string `json:"id"`
	Key   string `json:"key,omitempty"` // as text, and "" if keys are hashed
	// Known reports whether anything is recorded for the key.
	Known bool `json:"known"`
	// Allowed reports whether a call for one unit would be admitted now. Otherwise Retry is
	// after which time it would be, and -1 if never.
	Allowed bool    `json:"allowed"`
	Retry   float64 `json:"retry"`
	// Wait is how long an admitted call would be delayed, under a limit that delays calls.
	Wait    float64 `json:"wait,omitempty"`
	Blocked float64 `json:"blocked,omitempty"` // for how much longer
	Waiting int     `json:"waiting,omitempty"` // calls in the key's line
	// Parts has each limit that the key is held to, at least one. Binding is the index of
	// the one that decides, and -1 if none does.
	Parts   []Part `json:"parts"`
	Binding int    `json:"binding"`
	// Candidates say what those of a limits.Trial would, the outermost first.
	Candidates []Candidate `json:"candidates,omitempty"`
	Words      string      `json:"words"` // all this in sentences
	// Note says that a change was made and the key cannot be explained after it. The rest is
	// then not known, except for Limit, ID and Key.
	Note string `json:"note,omitempty"`
}

// Candidate is what a candidate of a limits.Trial would say of a call for one unit.
type Candidate struct {
	Allowed bool    `json:"allowed"`
	Retry   float64 `json:"retry"` // as that of an Explanation
	Parts   []Part  `json:"parts"`
}

// Part is one limit that a key is held to.
type Part struct {
	Name      string  `json:"name,omitempty"`
	Policy    string  `json:"policy"` // the limit as text: see policy.Parse
	Words     string  `json:"words"`  // the limit in words
	Used      int64   `json:"used"`
	Units     int64   `json:"units"` // that Used is of
	Remaining int64   `json:"remaining"`
	Allowed   bool    `json:"allowed"`
	Retry     float64 `json:"retry"`
	Full      float64 `json:"full"` // until the key owes nothing
	// Returns says when units come back if no call takes meanwhile, soonest first.
	Returns []Return `json:"returns"`
	Source  string   `json:"source,omitempty"` // what decided: see limits.Source
}

// Return is a part of what a key has used that comes back.
type Return struct {
	After     float64 `json:"after"`
	Remaining int64   `json:"remaining"` // units that can be taken then
}

// Fault is the answer to a request that fails, with a status of 400 or above.
type Fault struct {
	Error string `json:"error"`
}
