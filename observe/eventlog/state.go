package eventlog

import (
	"log/slog"
	"slices"
	"sync"
	"time"
)

// news are the newest records of topics that were too many to be written.
type news struct {
	mu      sync.Mutex // held while a record of a topic is written, so that they are in order
	pending []*pending // in the order in which they came
	armed   bool       // a timer is to write them
}

// pending is the newest record of a topic.
type pending struct {
	topic   any
	record  record
	omitted uint64 // records of the topic that were left out before it
}

// State is Record for a record that says how something is from now on, as that an outage began
// or ended. All such records of one topic are about the same thing. They are written one after
// the other, in the order of the calls. If too many records were written, the newest of the topic
// is written as soon as one may be, with how many before it were left out as more_of_this. Until
// then no Record of its level is written, so that a flood does not hold it up. So the last word
// in the log about each topic is true in the end.
//
// It waits for the handler of the logger, which must not call it.
func (l *Log) State(topic string, at slog.Level, text string, attributes ...slog.Attr) {
	l.state(topic, record{at, text, attributes})
}

func (l *Log) state(topic any, r record) {
	n := &l.news
	n.mu.Lock()
	defer n.mu.Unlock()
	i := slices.IndexFunc(n.pending, func(p *pending) bool { return p.topic == topic })
	p := &pending{topic: topic, record: r}
	if i >= 0 { // what has not been written is not true any more
		p.omitted = n.pending[i].omitted + 1
		l.level(n.pending[i].record.at).owed.Add(-1)
		n.pending = slices.Delete(n.pending, i, i+1)
	}
	if !l.enabled(r.at) {
		return
	}
	if after := l.write(r, p.omitted); after > 0 {
		n.pending = append(n.pending, p)
		l.level(r.at).owed.Add(1)
		l.arm(after)
	}
}

// arm has a timer write what is pending. The caller holds news.mu.
func (l *Log) arm(after time.Duration) {
	if l.news.armed {
		return
	}
	l.news.armed = true
	time.AfterFunc(after, l.catchUp)
}

// catchUp writes what is pending, as far as it may be written now.
func (l *Log) catchUp() {
	n := &l.news
	n.mu.Lock()
	defer n.mu.Unlock()
	n.armed = false
	var next time.Duration
	n.pending = slices.DeleteFunc(n.pending, func(p *pending) bool {
		after := l.write(p.record, p.omitted)
		if after > 0 && (next == 0 || after < next) {
			next = after
		}
		if after == 0 {
			l.level(p.record.at).owed.Add(-1)
		}
		return after == 0
	})
	if next > 0 {
		l.arm(next)
	}
}
