package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/fleet"
	"github.com/ral-limiter/ral/internal/testkit/child"
	"github.com/ral-limiter/ral/policy"
)

const (
	servers = 3
	tick    = 500 * time.Millisecond // time between two looks
)

// stage is a Redis, the servers that share it, and their load.
type stage struct {
	settings settings
	began    time.Time
	redis    *child.Redis
	paused   atomic.Bool
	answers  atomic.Bool // Redis answered the last ping
	servers  [servers]*server
	load     *load
	stop     context.CancelFunc
	running  sync.WaitGroup
	acting   sync.Mutex // held to stop or start Redis or a server

	mu    sync.Mutex
	notes []note // the last notes, under mu
}

type server struct {
	config  fleet.Config
	limiter atomic.Pointer[fleet.Limiter] // nil while stopped
}

type note struct {
	At   int64  `json:"at"`  // in milliseconds from the beginning
	Who  string `json:"who"` // "" is the user
	Text string `json:"text"`
}

func open(ctx context.Context, settings settings, config fleet.Config, program string) (_ *stage, err error) {
	g := &stage{settings: settings, began: time.Now(), stop: func() {}}
	// Each command reaches the kernel before its answer, so a kill of the process loses nothing.
	g.redis, err = child.OpenRedis(child.RedisConfig{Program: program, Args: []string{"--appendonly", "yes", "--appendfsync", "no"}})
	if err != nil {
		return nil, fmt.Errorf("%w (-redis says which to start)", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	config.Redis = rueidis.ClientOption{InitAddress: []string{g.redis.Addr()}}
	for i := range g.servers {
		name := fmt.Sprintf("server %d", i+1)
		config.OnEvent = func(event fleet.Event) { g.note(name, tell(event)) }
		g.servers[i] = &server{config: config}
		if err := g.servers[i].start(); err != nil {
			return nil, err
		}
	}
	capacity := float64(config.Policy.Limit())
	g.load = newLoad(g.servers, g.began, capacity, capacity/config.Policy.(policy.Windowed).Window().Seconds())

	ctx, g.stop = context.WithCancel(ctx)
	g.running.Go(func() { g.load.run(ctx) })
	g.running.Go(func() { g.watch(ctx) })
	return g, nil
}

func (g *stage) watch(ctx context.Context) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for ctx.Err() == nil {
		g.answers.Store(g.redis.Ping(tick/2) == nil)
		g.load.cut(g.redisState())
		<-ticker.C
	}
}

func (s *server) start() error {
	limiter, err := fleet.New(s.config)
	if err != nil {
		return err
	}
	s.limiter.Store(limiter)
	return nil
}

// end stops a server, which gives back its leases.
func (s *server) end() error {
	if limiter := s.limiter.Swap(nil); limiter != nil {
		return limiter.Close()
	}
	return nil
}

func (g *stage) close() (err error) {
	g.stop()
	g.running.Wait()
	g.acting.Lock()
	defer g.acting.Unlock()
	for _, server := range g.servers {
		if server != nil {
			err = errors.Join(err, server.end())
		}
	}
	return errors.Join(err, g.redis.Close())
}

// redisDo acts for a button of the page.
func (g *stage) redisDo(what string) (err error) {
	g.acting.Lock()
	defer g.acting.Unlock()
	var text string
	state := g.redisState()
	switch {
	case what == "start" && state == "killed":
		text, err = "Redis is back, with the keys that it had written to disk.", g.redis.Restart()
	case what == "kill" && state != "killed":
		g.redis.Kill()
		g.paused.Store(false)
		text = "Redis was killed (SIGKILL)."
	case what == "pause" && (state == "up" || state == "silent"):
		text, err = "Redis was paused (SIGSTOP): it takes connections, and answers nothing.", g.redis.Pause()
		g.paused.Store(err == nil)
	case what == "resume" && state == "paused":
		text, err = "Redis goes on (SIGCONT).", g.redis.Resume()
		g.paused.Store(err != nil)
	default:
		return fmt.Errorf("%q cannot be done to a Redis that is %s", what, state)
	}
	if err == nil {
		g.note("", text)
	}
	return err
}

func (g *stage) redisState() string {
	switch {
	case g.redis.PID() == 0:
		return "killed"
	case g.paused.Load():
		return "paused"
	case !g.answers.Load():
		return "silent"
	}
	return "up"
}

// serverDo acts for a button of the page.
func (g *stage) serverDo(number int, what string) error {
	g.acting.Lock()
	defer g.acting.Unlock()
	if number < 1 || number > servers {
		return fmt.Errorf("there is no server %d", number)
	}
	server, runs := g.servers[number-1], g.servers[number-1].limiter.Load() != nil
	switch {
	case what == "start" && !runs:
		g.note("", fmt.Sprintf("Server %d was started.", number))
		return server.start()
	case what == "stop" && runs:
		g.note("", fmt.Sprintf("Server %d was stopped.", number))
		return server.end()
	}
	return fmt.Errorf("%q cannot be done to that server now", what)
}

func (g *stage) note(who, text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.notes = append(g.notes, note{time.Since(g.began).Milliseconds(), who, text})
	g.notes = g.notes[max(0, len(g.notes)-30):]
}

func tell(event fleet.Event) string {
	switch {
	case event.Kind == fleet.ChargedLocal && event.Units == 1:
		return "charged 1 call to Redis, which it had admitted without Redis"
	case event.Kind == fleet.ChargedLocal:
		return fmt.Sprintf("charged %d calls to Redis, which it had admitted without Redis", event.Units)
	case event.Err != nil:
		// The event's name says that Redis could not be asked.
		why := strings.TrimPrefix(event.Err.Error(), fleet.ErrOutage.Error()+": ")
		return fmt.Sprintf("%v: %v", event.Kind, strings.TrimPrefix(why, fleet.ErrBreakerOpen.Error()+": "))
	}
	return event.Kind.String()
}
