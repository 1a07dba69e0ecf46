package oracle

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	types "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/ral-limiter/ral/cmd/rald/envoyserver"
	"github.com/ral-limiter/ral/cmd/rald/families"
	"github.com/ral-limiter/ral/cmd/rald/rules"
	"github.com/ral-limiter/ral/internal/testkit/child"
	"github.com/ral-limiter/ral/internal/testkit/redisd"
)

// buildReference builds the reference in the version that this module requires.
func buildReference(t *testing.T) (program string) {
	t.Helper()
	const module = "github.com/envoyproxy/ratelimit"
	version, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", module).Output()
	require.NoError(t, err)
	bin := t.TempDir()
	install := exec.Command("go", "install", module+"/src/service_cmd@"+strings.TrimSpace(string(version)))
	install.Env = append(os.Environ(), "GOBIN="+bin)
	out, err := install.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return filepath.Join(bin, "service_cmd")
}

// startReference starts the reference on its own Redis, with the files of a directory.
func startReference(t *testing.T, program, dir string) pb.RateLimitServiceClient {
	t.Helper()
	store, err := redisd.Open(redisd.Config{})
	require.NoError(t, err, "make needs installs it")
	t.Cleanup(func() { assert.NoError(t, store.Close()) })

	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "RUNTIME_ROOT="+filepath.Dir(filepath.Dir(dir)), "RUNTIME_SUBDIRECTORY="+filepath.Base(filepath.Dir(dir)),
		"RUNTIME_WATCH_ROOT=false", "USE_STATSD=false", "LIMIT_RESPONSE_HEADERS_ENABLED=true",
		"REDIS_SOCKET_TYPE="+store.Network(), "REDIS_URL="+store.Addr(), "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1")
	var addr string
	for _, port := range []string{"PORT", "DEBUG_PORT", "GRPC_PORT"} {
		free, err := redisd.FreePort()
		require.NoError(t, err)
		cmd.Env = append(cmd.Env, port+"="+strconv.Itoa(free))
		addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(free))
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	process, err := child.Start(cmd)
	require.NoError(t, err)
	t.Cleanup(process.Kill)
	for {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
			break
		}
		if !process.Runs() {
			said, _ := os.ReadFile(log.Name())
			require.Fail(t, "the reference ended", "%s", said)
		}
		time.Sleep(10 * time.Millisecond) // wall: between two looks for the event
	}
	c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return pb.NewRateLimitServiceClient(c)
}

func lasting(seed uint64) *generator {
	g := apart(seed)
	g.units = []string{"hour", "day", "week", "month", "year", "HOUR", "Day"}
	return g
}

// The reference is a process with a real Redis, over gRPC. If an hour ends, the test begins again.
func TestVerdictsAreThoseOfTheReferenceOnRedis(t *testing.T) {
	if testing.Short() {
		t.Skip("the first build of the reference takes minutes, and needs the network")
	}
	const configurations, each = 40, 50
	dir := filepath.Join(t.TempDir(), "files", "config")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	var all []*generator
	var files []rules.Source
	for i := range uint64(configurations) {
		g := lasting(*seed + i)
		of := g.files()
		if _, err := referenceReads(of, false); err != nil {
			continue // two files share a domain
		}
		all = append(all, g)
		for _, f := range of {
			f.Name = fmt.Sprintf("%d-%s", i, f.Name)
			require.NoError(t, os.WriteFile(filepath.Join(dir, f.Name), f.Text, 0o600))
			files = append(files, f)
		}
	}
	set, err := rules.Parse(files, rules.Options{})
	require.NoError(t, err)
	program := buildReference(t)
	hour := func() int64 { return time.Now().Unix() / 3600 }
	for range 3 {
		begun := hour()
		seen, wrong := compareAll(t, program, dir, all, set, each)
		if hour() != begun {
			continue
		}
		require.Empty(t, wrong)
		t.Logf("%+v", seen)
		assert.Greater(t, seen.over, each*len(all)/20)
		assert.Greater(t, seen.statuses, each*len(all))
		return
	}
	require.Fail(t, "it takes longer than an hour")
}

// compareAll compares requests to each configuration, on counts that are all 0.
func compareAll(t *testing.T, program, dir string, all []*generator, set *rules.Set, each int) (seen outcomes, wrong string) {
	t.Helper()
	keep, err := families.New(families.Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, keep.Close()) }()
	door, err := envoyserver.New(envoyserver.Config{Families: keep, Headers: true}, set)
	require.NoError(t, err)
	reference := startReference(t, program, dir)
	for _, g := range all {
		if wrong = compareProcesses(reference, door, g, set, each, &seen); wrong != "" {
			break
		}
	}
	return seen, wrong
}

// compareProcesses returns a difference between answers to random requests, or "".
func compareProcesses(
	reference pb.RateLimitServiceClient, door *envoyserver.Service, g *generator, set *rules.Set, requests int, seen *outcomes,
) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var some []*pb.RateLimitRequest // so that descriptors come again
	for range 4 {
		some = append(some, g.request(set))
	}
	for range requests {
		request := proto.Clone(some[g.IntN(len(some))]).(*pb.RateLimitRequest)
		for _, d := range request.Descriptors {
			if d.Limit != nil && d.Limit.Unit < types.RateLimitUnit_HOUR {
				d.Limit.Unit = types.RateLimitUnit_HOUR
			}
		}
		before := time.Now().Unix()
		want, wantErr := reference.ShouldRateLimit(ctx, request)
		got, err := door.ShouldRateLimit(ctx, request)
		late := time.Now().Unix() - before
		shown := fmt.Sprintf("the reference says %v %v\n\nrald says %v %v\n\nto %v", prototext.Format(want), wantErr, prototext.Format(got), err, request)
		if (wantErr == nil) != (err == nil) {
			return shown
		}
		if err != nil {
			continue
		}
		seen.see(got)
		for i, s := range want.Statuses {
			if until := s.DurationUntilReset; until != nil && i < len(got.Statuses) {
				// rald was asked later.
				if d := until.Seconds - got.Statuses[i].DurationUntilReset.GetSeconds(); d < 0 || d > late {
					return shown
				}
				until.Seconds = got.Statuses[i].DurationUntilReset.Seconds
			}
		}
		for i, h := range want.ResponseHeadersToAdd {
			if h.Key == "RateLimit-Reset" && i < len(got.ResponseHeadersToAdd) {
				h.Value = got.ResponseHeadersToAdd[i].Value // of a status, which was compared
			}
		}
		if !proto.Equal(want, got) {
			return shown
		}
	}
	return ""
}
