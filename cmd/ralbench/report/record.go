package report

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Record holds the goals of a run, as the file goals.json keeps those of the last
// recorded one. ralbench -record writes it.
type Record struct {
	Time    time.Time      `json:"time"`
	Machine Machine        `json:"machine"`
	Full    bool           `json:"full"`
	Goals   []RecordedGoal `json:"goals"`
}

// RecordedGoal is a goal with what was measured.
type RecordedGoal struct {
	goalKey
	Value   float64 `json:"value"`
	Goal    float64 `json:"goal"`
	Reached bool    `json:"reached"`
}

//go:embed goals.json
var recorded []byte

// Recorded returns the goals of the last recorded run.
func Recorded() (r Record) {
	if err := json.Unmarshal(recorded, &r); err != nil {
		panic("ralbench: goals.json: " + err.Error()) // it is part of the program, and a test reads it
	}
	return r
}

// RecordOf returns the goals of a run as a record.
func RecordOf(d Document) Record {
	r := Record{Time: d.Time, Machine: d.Machine, Full: d.Settings.Full}
	for _, g := range Goals(d) {
		r.Goals = append(r.Goals, RecordedGoal{g.key, g.Value, g.Most, g.Reached()})
	}
	return r
}

// Write writes the record as JSON.
func (r Record) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// find returns what was recorded of a goal, and false if nothing was.
func (r Record) find(g Goal) (RecordedGoal, bool) {
	for _, old := range r.Goals {
		if old.goalKey == g.key {
			return old, true
		}
	}
	return RecordedGoal{}, false
}

// about says which run was recorded.
func (r Record) about() string {
	if len(r.Goals) == 0 {
		return "No run is recorded."
	}
	kind := "a short run"
	if r.Full {
		kind = "a run with -full"
	}
	return fmt.Sprintf("The last recorded one is %s of commit %s, %s, on %d cores of %s.", kind, r.Machine.Commit, r.Time.Format(time.DateOnly), r.Machine.Cores, r.Machine.CPU)
}
