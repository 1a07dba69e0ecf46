package oracle

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/envoyproxy/ratelimit/src/config"
	"github.com/envoyproxy/ratelimit/src/provider"
	"github.com/envoyproxy/ratelimit/src/redis"
	ratelimit "github.com/envoyproxy/ratelimit/src/service"
	"github.com/envoyproxy/ratelimit/src/settings"
	"github.com/envoyproxy/ratelimit/src/stats"
	gostats "github.com/lyft/gostats"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/cmd/rald/internal/rules"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		*pairs /= 4
	}
	logrus.SetOutput(io.Discard)
	logrus.SetLevel(logrus.PanicLevel)
	os.Exit(m.Run())
}

func counters() stats.Manager {
	return stats.NewStatManager(gostats.NewStore(gostats.NewNullSink(), false), settings.Settings{})
}

// referenceReads returns the reference's configuration, or the error that it panics with.
func referenceReads(files []rules.Source, merge bool) (c config.RateLimitConfig, err error) {
	defer func() {
		if p := recover(); p != nil {
			refused, ok := p.(config.RateLimitConfigError)
			if !ok {
				err = fmt.Errorf("it panicked: %v", p)
				return
			}
			err = errors.New(refused.Error())
		}
	}()
	var all []config.RateLimitConfigToLoad
	for _, f := range files {
		all = append(all, config.RateLimitConfigToLoad{Name: f.Name, ConfigYaml: config.ConfigFileContentToYaml(f.Name, string(f.Text))})
	}
	return config.NewRateLimitConfigImpl(all, counters(), merge), nil
}

func moduleDir(t *testing.T, module string) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// reference is the reference's service, on counts that it takes for Redis.
type reference struct {
	ratelimit.RateLimitServiceServer
	counts map[string]uint64
}

func newReference() *reference {
	r := &reference{counts: map[string]uint64{}}
	cache := redis.NewFixedRateLimitCacheImpl(r, nil, r, rand.New(rand.NewSource(1)), 0, nil, 0.8, "", counters(), false)
	r.RateLimitServiceServer = ratelimit.NewService(cache, r, counters(), nil, r, false, true, false)
	return r
}

// UnixNow is the bubble's time in a bubble.
func (r *reference) UnixNow() int64 { return time.Now().Unix() }

// ConfigUpdateEvent never sends.
func (r *reference) ConfigUpdateEvent() <-chan provider.ConfigUpdateEvent { return nil }

func (r *reference) Stop() {}

func (r *reference) use(c config.RateLimitConfig) { r.SetConfig(update{c}, false) }

type update struct{ config config.RateLimitConfig }

func (u update) GetConfig() (config.RateLimitConfig, any) { return u.config, nil }

// PipeAppend executes at once.
func (r *reference) PipeAppend(p redis.Pipeline, rcv any, cmd, key string, args ...any) redis.Pipeline {
	if cmd == "INCRBY" {
		r.counts[key] += args[0].(uint64)
		*rcv.(*uint64) = r.counts[key]
	}
	return append(p, redis.PipelineAction{Key: key})
}

func (r *reference) PipeDo(redis.Pipeline) error { return nil }

func (r *reference) DoCmd(any, string, string, ...any) error { return errors.ErrUnsupported }

func (r *reference) Close() error { return nil }

func (r *reference) NumActiveConns() int { return 1 }
