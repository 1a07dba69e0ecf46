package sidebyside

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ral-limiter/ral/internal/testkit/testenv"
)

// By the clients' counts, Ral stays within its limit in any stretch of time. Others are reported.
//
//	go test -v -run AdmittedSideBySide ./test/sidebyside/http
func TestAdmittedSideBySide(t *testing.T) {
	rdb := startRedis(t)
	for _, over := range []string{"handlers", "connections"} {
		open := func(t *testing.T, per time.Duration, large int) (streams []*stream) {
			for _, c := range contenders {
				if c.promise == nil {
					continue
				}
				limit := large
				if c.shared || over == "connections" {
					limit = 100
				}
				s := &stream{contender: c, setting: settingOf(limit, per, rdb.Options().Addr)}
				s.open(t, over == "connections")
				streams = append(streams, s)
			}
			return streams
		}
		// The period outlasts the test, to show each request too many. Fast requests get a large
		// limit, so that many are decided at once.
		t.Run(over+",burst", func(t *testing.T) {
			large := 100_000
			if testenv.Race {
				large = 5_000
			}
			streams := open(t, time.Hour, large)
			for _, s := range streams {
				send(t, 0, s)
			}
			judgeAll(t, streams)
		})
		// Periods begin meanwhile. httprate-redis tells them apart by their second.
		t.Run(over+",stream", func(t *testing.T) {
			length := 2200 * time.Millisecond
			if testing.Short() {
				length = 1200 * time.Millisecond
			}
			streams := open(t, time.Second, 100)
			send(t, length, streams...)
			judgeAll(t, streams)
		})
	}
}

func judgeAll(t *testing.T, streams []*stream) {
	var report strings.Builder
	report.WriteString("| | servers | requests | admitted | promised at most | above it in some stretch | most in a period |\n|---|---|---|---|---|---|---|\n")
	for _, s := range streams {
		all, promised := s.joined()
		above, most := s.judge(all)
		asked, others := s.counts()
		fmt.Fprintf(&report, "| %s | %d | %d | %d | %d | %d | %d |\n", s.name, s.servers(), asked, len(all), promised, above, most)
		if others > 0 {
			fmt.Fprintf(&report, "%d of these requests were answered neither with 200 nor with 429\n", others)
		}
		if strings.HasPrefix(s.name, "ral") {
			assert.Zero(t, above, "%s admitted more than its limit in some stretch", s.name)
			assert.Zero(t, others, s.name)
			if s.name != "ral-leased" { // which keeps a part back
				assert.GreaterOrEqual(t, len(all), s.setting.limit, "%s did not admit its limit", s.name)
			}
		}
	}
	t.Log("\n" + report.String())
}

// senders is the number of sending goroutines, each a client of every contender.
const senders = 32

const servers = 4

// stream holds a contender's requests by its clients. Each sender has its own list.
type stream struct {
	contender
	setting  setting
	clients  [senders]client
	admitted [senders][]admission
	refused  [senders]int
	others   [senders]int // of other statuses
}

// admission is the time in which a request was decided.
type admission struct{ sent, answered time.Duration }

func (s *stream) servers() int {
	if s.shared {
		return servers
	}
	return 1
}

// open makes the contender, behind servers if wanted, with the senders spread over them.
func (s *stream) open(t *testing.T, connections bool) {
	var open []func() client
	for range s.servers() {
		h := s.make(t, s.setting)(hello)
		if connections {
			addr := serve(t, h)
			open = append(open, func() client { return connect(t, addr) })
		} else {
			open = append(open, func() client { return caller(h, clientRequests(1), 0) })
		}
	}
	for i := range senders {
		s.clients[i] = open[i%len(open)]()
	}
}

// send has every sender send each request to all contenders, in changing order, for the given time
// and until there were about twice the limit.
func send(t *testing.T, length time.Duration, streams ...*stream) {
	var all sync.WaitGroup
	start := time.Now()
	for sender := range senders {
		all.Go(func() {
			least := 2 * streams[0].setting.limit / senders
			for n := 0; n < least || time.Since(start) < length; n++ { // wall: it covers beginnings of windows, of any number
				for i := range streams {
					s := streams[(sender+n+i)%len(streams)]
					sent := time.Since(start) // wall: before the decision, however late it comes
					status, err := s.clients[sender]()
					if err != nil {
						t.Errorf("%s: %v", s.name, err)
						return
					}
					switch status {
					case http.StatusOK:
						answered := time.Since(start) // wall: after the decision
						s.admitted[sender] = append(s.admitted[sender], admission{sent, answered})
					case http.StatusTooManyRequests:
						s.refused[sender]++
					default:
						s.others[sender]++
					}
				}
			}
		})
	}
	all.Wait()
}

// joined returns the admissions, in the order of the answers, and the most that the promise allows.
func (s *stream) joined() (all []admission, allowed int64) {
	all = slices.Concat(s.admitted[:]...)
	slices.SortFunc(all, func(a, b admission) int { return cmp.Compare(a.answered, b.answered) })
	if len(all) == 0 {
		return nil, 0
	}
	first := slices.MinFunc(all, func(a, b admission) int { return cmp.Compare(a.sent, b.sent) })
	return all, s.promise(s.setting, all[len(all)-1].answered-first.sent, true)
}

// judge returns the greatest excess over the promise in stretches from a request to an answer, and
// the most admitted in a period. Only requests sent and answered within a stretch were surely
// decided there. Of many requests not all are tried as the first; the first of all is.
func (s *stream) judge(all []admission) (above int64, most int) {
	begins := slices.SortedFunc(slices.Values(all), func(a, b admission) int { return cmp.Compare(a.sent, b.sent) })
	for i := 0; i < len(begins); i += len(all)/(10_000_000/len(all)+1) + 1 {
		from := begins[i]
		var n int64
		for _, to := range all {
			if to.sent < from.sent {
				continue
			}
			n++
			d := to.answered - from.sent
			above = max(above, n-s.promise(s.setting, d, false))
			if d <= s.setting.per {
				most = max(most, int(n))
			}
		}
	}
	return above, most
}

func (s *stream) counts() (asked, others int) {
	for i := range senders {
		asked += len(s.admitted[i]) + s.refused[i] + s.others[i]
		others += s.others[i]
	}
	return asked, others
}
