// Package pagejson holds the JSON of package inspect's page. A request is a [KeyRequest] or a
// [ChangeRequest], or has parameters; a request that fails is answered with a [Fault].
//
//	GET  limits?since=TICK                             Overview, with the points after TICK
//	GET  keys?limit=NAME&by=owed&n=20&after=NEXT       List; by may be "refused" or "warned"
//	GET  history?limit=NAME                            History, of the last day
//	POST key                                           Explanation
//	POST change                                        Explanation, after the change
//	POST token                                         {"operator": NAME}, of the token that a change needs
//
// Times are in seconds, unless a field says otherwise. Never is -1.
package pagejson

import "time"

// Overview answers a GET of "limits": all limits, and their recent load.
type Overview struct {
	// Now is the time of this process.
	Now time.Time `json:"now"`
	// Tick numbers the last point. "limits?since=Tick" has only the points after it.
	Tick uint64 `json:"tick"`
	// Every is the seconds between points.
	Every float64 `json:"every"`
	// Changes reports whether keys may be changed, with a token.
	Changes bool `json:"changes"`
	// Hashed reports whether keys are shown as hashes.
	Hashed bool `json:"hashed"`
	// Health says what is wrong with the program's configuration, "" if nothing is.
	Health string         `json:"health,omitempty"`
	Limits []LimitSummary `json:"limits"`
}

// LimitSummary is a limit in an Overview.
type LimitSummary struct {
	Name string `json:"name"`
	// Policy is the limit as text: see policy.Parse.
	Policy string `json:"policy"`
	// Words is the limit in words.
	Words string `json:"words"`
	// Units is policy.Policy.Limit.
	Units int64 `json:"units"`
	// Lists reports whether the limiter lists keys. Keyless reports whether the only key is "".
	Lists   bool `json:"lists"`
	Keyless bool `json:"keyless"`
	// Verbs are the limiter's changes: "reset", "charge", "block" and "lift".
	Verbs []string `json:"verbs"`
	// Health is the limiter's Health, "" if in order. Trouble says why something here is missing.
	Health  string `json:"health,omitempty"`
	Trouble string `json:"trouble,omitempty"`
	// Alarms say what an operator must look at, the gravest first. There are none if all is well.
	Alarms []Alarm `json:"alarms,omitempty"`
	// Usual is the usual refusals a second, -1 if it is not known: the median of the last 60 minutes without an
	// alarm for refusals, known from 10 on, or the mean of the same hour yesterday if that is more.
	Usual float64 `json:"usual"`
	// Use counts an engine's keys by their use, nil before the first count.
	Use *KeysByUse `json:"use,omitempty"`
	// Trials belong to a limits.Trial, the outermost first.
	Trials []TrialSummary `json:"trials,omitempty"`
	// Tenants belong to an engine.Shares: at most 1,000, the most refused first.
	Tenants []Tenant `json:"tenants,omitempty"`
	// Figures are the exported fields of the limiter's Stats, durations in seconds.
	Figures map[string]any `json:"figures"`
	// Points has the oldest point first.
	Points []Point `json:"points"`
}

// Alarm is something wrong with a limit, or far from usual.
type Alarm struct {
	// Words leaves out the limit's name.
	Words string `json:"words"`
	// ID and Key are of the key that is refused most, as of a Row. They are "" if no key is meant.
	ID  string `json:"id,omitempty"`
	Key string `json:"key,omitempty"`
}

// KeysByUse is engine.KeysByUse.
type KeysByUse struct {
	// Age is the seconds since the count ended.
	Age       float64 `json:"age"`
	Unused    int     `json:"unused"`
	BelowHalf int     `json:"belowHalf"`
	// Half counts keys that used half or more, and less than 80%.
	Half int `json:"half"`
	// Most counts keys that used 80% or more, and not all.
	Most int `json:"most"`
	All  int `json:"all"`
	// UnitsInUse adds up the units in use under a limit of calls at once.
	UnitsInUse uint64 `json:"unitsInUse,omitempty"`
}

// Tenant is engine.TenantUse. ID and Key are as in a Row.
type Tenant struct {
	ID        string `json:"id"`
	Key       string `json:"key,omitempty"`
	Used      int64  `json:"used"`
	Guarantee int64  `json:"guarantee"` // 0 if none
	Borrowed  uint64 `json:"borrowed"`
	Refused   uint64 `json:"refused"`
}

// TrialSummary is a candidate on trial, with limits.TrialStats.
type TrialSummary struct {
	// Policy is the candidate's limit as text: see policy.Parse.
	Policy      string `json:"policy"`
	Admitted    uint64 `json:"admitted"`
	Refused     uint64 `json:"refused"`
	WouldRefuse uint64 `json:"wouldRefuse"`
	WouldAdmit  uint64 `json:"wouldAdmit"`
	Failed      uint64 `json:"failed"`
}

// Point is the load of a limit at one moment.
type Point struct {
	// At is the Unix time in milliseconds.
	At int64 `json:"at"`
	// Admitted and Refused are calls a second since the point before.
	Admitted float64 `json:"admitted"`
	Refused  float64 `json:"refused"`
	// Keys counts the table's keys. Used is the used share, 0 to 1, of a limit without keys.
	Keys int     `json:"keys"`
	Used float64 `json:"used"`
}

// History answers a GET of "history": a limit's coarse points of the last 24 hours.
type History struct {
	// Every is the seconds between points. A point has the mean of the load since the point before.
	Every float64 `json:"every"`
	// Points has the oldest point first.
	Points []Point `json:"points"`
}

// List answers a GET of "keys": a page of the keys that owe or are refused most, or of the latest
// that passed a share of their limit ("by=owed", "refused", "warned").
type List struct {
	Limit string `json:"limit"`
	By    string `json:"by"`
	Rows  []Row  `json:"rows"`
	// Total is the number of owing keys on all pages, of all refusals in the list's time, or of all
	// warnings.
	Total uint64 `json:"total"`

	// Next is the parameter "after" of the next page of "owed", "" if none. Any page may be short.
	Next string `json:"next,omitempty"`
	// Age of the figures of "owed" is in seconds. Pending: the first scan is under way, ask again.
	Age     float64 `json:"age,omitempty"`
	Pending bool    `json:"pending,omitempty"`

	// For is the seconds in which refusals of rows were counted. OthersMost, of "refused", bounds any other key's refusals.
	For        float64 `json:"for,omitempty"`
	OthersMost uint64  `json:"othersMost,omitempty"`
}

// Row is a key in a List.
type Row struct {
	// ID, a hash of this process, names the key in requests while the handler remembers it.
	ID string `json:"id"`
	// Key is the key as text, or "" if it is hashed.
	Key string `json:"key,omitempty"`
	// Blocked is the rest of the key's block, in seconds.
	Blocked float64 `json:"blocked,omitempty"`

	// Of "owed": the used share of the key's limit, 0 to 1, and the remaining units. Returns is the
	// seconds until the next unit, -1 if never, and Full until nothing is owed.
	Share     float64 `json:"share"`
	Remaining int64   `json:"remaining"`
	Returns   float64 `json:"returns"`
	Full      float64 `json:"full"`

	// Of "warned": the Share that was passed, the Remaining units then, and Last, the seconds since.

	// Of "refused" and "owed": the estimated refusals, their bounds, and seconds since the last
	// known. A key of "owed" without these is not among the most refused.
	Refused uint64  `json:"refused,omitempty"`
	Least   uint64  `json:"least,omitempty"`
	Most    uint64  `json:"most,omitempty"`
	Last    float64 `json:"last,omitempty"`
}

// KeyRequest is the body of a POST to "key", and part of a ChangeRequest. Logs do not see a body.
type KeyRequest struct {
	Limit string `json:"limit"`
	// Key is text, ID a row's. Either is set, unless the limit has no keys.
	Key string `json:"key,omitempty"`
	ID  string `json:"id,omitempty"`
}

// ChangeRequest is the body of a POST to "change", which needs a token.
type ChangeRequest struct {
	KeyRequest
	// Do is "reset" (the use and the block), "charge", "block" or "lift" (the block alone).
	Do string `json:"do"`
	// Units are charged, even beyond the limit. Below 0 they are given back.
	Units int64 `json:"units,omitempty"`
	// For is how long a block lasts, such as "10m".
	For string `json:"for,omitempty"`
}

// Explanation answers "key" and "change", by limits.Explain. Times are in seconds.
type Explanation struct {
	Limit string `json:"limit"`
	ID    string `json:"id"`
	// Key is the key as text, or "" if it is hashed.
	Key string `json:"key,omitempty"`
	// Known reports whether anything is recorded for the key.
	Known bool `json:"known"`
	// Allowed reports whether a unit would be admitted now. If not, Retry is when, or -1 for never.
	Allowed bool    `json:"allowed"`
	Retry   float64 `json:"retry"`
	// Wait is how long an admitted call would be delayed.
	Wait float64 `json:"wait,omitempty"`
	// Blocked is the rest of the key's block.
	Blocked float64 `json:"blocked,omitempty"`
	// Waiting is the number of calls in the key's line.
	Waiting int `json:"waiting,omitempty"`
	// Parts has each limit of the key. Binding is the index of the deciding limit, or -1.
	Parts   []Part `json:"parts"`
	Binding int    `json:"binding"`
	// Candidates belong to a limits.Trial, the outermost first.
	Candidates []Candidate `json:"candidates,omitempty"`
	// Words has all this in sentences, except times: only the age of the oldest unit in use is among them.
	Words string `json:"words"`
	// Note says that the key cannot be explained after a change. Only Limit, ID and Key are known.
	Note string `json:"note,omitempty"`
}

// Candidate is the decision of a limits.Trial's candidate on one unit.
type Candidate struct {
	Allowed bool `json:"allowed"`
	// Retry is as in Explanation.
	Retry float64 `json:"retry"`
	Parts []Part  `json:"parts"`
}

// Part is a limit of the key.
type Part struct {
	Name string `json:"name,omitempty"`
	// Policy is the limit as text: see policy.Parse.
	Policy string `json:"policy"`
	// Words is the limit in words.
	Words string `json:"words"`
	Used  int64  `json:"used"`
	// Units is the bound of Used.
	Units     int64   `json:"units"`
	Remaining int64   `json:"remaining"`
	Allowed   bool    `json:"allowed"`
	Retry     float64 `json:"retry"`
	// Full is the time until the key owes nothing.
	Full float64 `json:"full"`
	// Returns says when units come back if no call takes meanwhile, soonest first.
	Returns []Return `json:"returns"`
	// Source is a limits.Source as text.
	Source string `json:"source,omitempty"`
}

// Return says when used units come back.
type Return struct {
	After float64 `json:"after"`
	// Remaining is the units that can be taken then.
	Remaining int64 `json:"remaining"`
}

// Fault answers a request that fails, with a status of 400 or above.
type Fault struct {
	Error string `json:"error"`
}
