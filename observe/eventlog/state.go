package eventlog

import (
	"log/slog"
	"slices"
	"sync"
	"time"
)

// news has the newest records of topics that exceeded the rate.
type news struct {
	// mu is held while a topic's record is written, for their order.
	mu sync.Mutex
	// pending is in the order of arrival.
	pending []*pending
	// armed means that a timer is to write the records.
	armed bool
}

type pending struct {
	topic  any
	record record
	// omitted is the number of records of the topic left out before.
	omitted uint64
}

// State is Record for a lasting state of a topic, such as an outage that began or ended. Records of
// a topic are written in the order of the calls. Above the rate, the newest is written as soon as
// possible, with the number left out before it as more_of_this. Until then no Record of its level
// is written. So the log's last word on each topic is true in the end.
//
// State waits for the logger's handler, which must not call it.
func (l *Log) State(topic string, at slog.Level, text string, attributes ...slog.Attr) {
	l.state(topic, record{at, text, attributes})
}

func (l *Log) state(topic any, record record) {
	news := &l.news
	news.mu.Lock()
	defer news.mu.Unlock()
	i := slices.IndexFunc(news.pending, func(pending *pending) bool { return pending.topic == topic })
	p := &pending{topic: topic, record: record}
	// A pending record is out of date.
	if i >= 0 {
		p.omitted = news.pending[i].omitted + 1
		l.level(news.pending[i].record.level).owed.Add(-1)
		news.pending = slices.Delete(news.pending, i, i+1)
	}
	if !l.enabled(record.level) {
		return
	}
	if after := l.write(record, p.omitted); after > 0 {
		news.pending = append(news.pending, p)
		l.level(record.level).owed.Add(1)
		l.arm(after)
	}
}

// arm starts a timer for the pending records. The caller holds news.mu.
func (l *Log) arm(after time.Duration) {
	if l.news.armed {
		return
	}
	l.news.armed = true
	time.AfterFunc(after, l.catchUp)
}

func (l *Log) catchUp() {
	news := &l.news
	news.mu.Lock()
	defer news.mu.Unlock()
	news.armed = false
	var next time.Duration
	news.pending = slices.DeleteFunc(news.pending, func(pending *pending) bool {
		after := l.write(pending.record, pending.omitted)
		if after > 0 && (next == 0 || after < next) {
			next = after
		}
		if after == 0 {
			l.level(pending.record.level).owed.Add(-1)
		}
		return after == 0
	})
	if next > 0 {
		l.arm(next)
	}
}
