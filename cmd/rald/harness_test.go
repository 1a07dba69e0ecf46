package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	descriptor "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ral-limiter/ral/internal/testkit/child"
	"github.com/ral-limiter/ral/internal/testkit/logbuffer"
)

const (
	// beRald makes the test's program run as rald.
	beRald        = "TEST_RALD_RUN"
	operatorToken = "0123456789abcdef"
)

func TestMain(m *testing.M) {
	if os.Getenv(beRald) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// server is a rald, or another program, in a process of its own.
type server struct {
	*child.Process
	addr string
	log  logbuffer.Buffer
}

// run starts a command that ends with the test.
func (s *server) run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	var err error
	s.Process, err = child.Start(cmd)
	require.NoError(t, err, "make needs installs it")
	t.Cleanup(s.Kill)
}

// start starts rald, by default without an address for operators.
func start(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{addr: freeAddr(t)}
	cmd := exec.Command(os.Args[0], append([]string{"-listen", s.addr, "-admin", "none"}, args...)...)
	cmd.Env = append(os.Environ(), beRald+"=1")
	s.run(t, cmd)
	s.untilListens(t)
	return s
}

// until waits for an event while the server runs.
func (s *server) until(t *testing.T, happened func() bool) {
	t.Helper()
	for !happened() {
		require.True(t, s.Runs(), "%s ended: %s", s.addr, &s.log)
		time.Sleep(10 * time.Millisecond) // wall: between two looks for the event
	}
}

func (s *server) untilLogs(t *testing.T, text string) {
	t.Helper()
	s.until(t, func() bool { return strings.Contains(s.log.String(), text) })
}

func (s *server) untilListens(t *testing.T) {
	t.Helper()
	require.NoError(t, s.AwaitListener("tcp", s.addr, 10*time.Minute), &s.log)
}

func (s *server) end(t *testing.T) {
	t.Helper()
	require.NoError(t, s.Signal(syscall.SIGTERM))
	<-s.Ended()
}

// client is a client of Redis that repeats nothing and waits for a busy machine: an abandoned
// answer is a lost unit.
func (s *server) client(t *testing.T, o redis.Options) *redis.Client {
	t.Helper()
	o.Addr, o.MaxRetries = s.addr, -1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = time.Minute, time.Minute, time.Minute, time.Minute
	c := redis.NewClient(&o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// take makes a call on the limit api, and returns the taken and the remaining units.
func take(t *testing.T, c *redis.Client, key string) (took, remaining int64) {
	t.Helper()
	state, err := c.Do(context.Background(), "RAL.TAKE", key, "api").Slice()
	if !assert.NoError(t, err) {
		return 0, 0
	}
	// The elements are allowed and remaining.
	return state[1].(int64), state[5].(int64)
}

func remaining(t *testing.T, c *redis.Client, key, limit string) int64 {
	t.Helper()
	state, err := c.Do(context.Background(), "RAL.PEEK", key, limit).Slice()
	require.NoError(t, err)
	return state[5].(int64)
}

// tool runs a program of Redis against the server.
func tool(t *testing.T, s *server, name string, args ...string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(s.addr)
	require.NoError(t, err)
	out, err := exec.Command(name, append([]string{"-p", port}, args...)...).CombinedOutput()
	require.NoError(t, err, "%s: %s (make needs installs it)", name, out)
	return string(out)
}

// envoyAt is a client of Envoy's rate limit service.
func envoyAt(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ask asks Envoy's rate limit service about a user.
func ask(t *testing.T, to grpc.ClientConnInterface, user string) *pb.RateLimitResponse {
	t.Helper()
	answer, err := pb.NewRateLimitServiceClient(to).ShouldRateLimit(context.Background(), &pb.RateLimitRequest{
		Domain: "shop",
		Descriptors: []*descriptor.RateLimitDescriptor{{
			Entries: []*descriptor.RateLimitDescriptor_Entry{{Key: "user", Value: user}},
		}},
	}, grpc.WaitForReady(true))
	require.NoError(t, err)
	return answer
}

// fetch gets a page, with pairs of a name and a value as header fields.
func fetch(t *testing.T, c *http.Client, url string, fields ...string) (status int, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	require.NoError(t, err)
	for ; len(fields) > 0; fields = fields[2:] {
		r.Header.Set(fields[0], fields[1])
	}
	a, err := c.Do(r)
	require.NoError(t, err)
	defer a.Body.Close()
	all, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	return a.StatusCode, string(all)
}

func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := child.FreeAddr()
	require.NoError(t, err)
	return addr
}

const (
	limitsFile = "limits:\n  api: funnel 100, 1/h\n"
	checkFile  = "proxy: caddy\nrules:\n  - {match: /, limit: api, key: everybody}\n"
)

// rulesOf returns rules with a limit a year for each user.
func rulesOf(requests int) string {
	return "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: {unit: year, requests_per_unit: " + strconv.Itoa(requests) + "}\n"
}

// write replaces a file like an editor, so that no half of it is read.
func write(t *testing.T, dir, name, text string) {
	t.Helper()
	file := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(t, os.WriteFile(file+".new", []byte(text), 0o600))
	require.NoError(t, os.Rename(file+".new", file))
}

// directory returns a new directory with pairs of a file's name and text.
func directory(t *testing.T, files ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for ; len(files) > 0; files = files[2:] {
		write(t, dir, files[0], files[1])
	}
	return dir
}

// wholeDirectory configures every door.
func wholeDirectory(t *testing.T) string {
	t.Helper()
	return directory(t, "limits.yaml", limitsFile, "check.yaml", checkFile, "envoy/shop.yaml", rulesOf(2))
}

// certificates writes a certificate for 127.0.0.1 and its key into files. trusting is a client that
// trusts it, and has it as its own.
func certificates(t *testing.T) (certFile, keyFile string, trusting *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "rald test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	keyBytes, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	dir := directory(t,
		"cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})),
		"key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyBytes})))
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	require.NoError(t, err)
	trusting = &tls.Config{RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{pair}}
	trusting.RootCAs.AddCert(pair.Leaf)
	return certFile, keyFile, trusting
}

// needs skips a test under -short. The ending of its name says what it needs.
func needs(t *testing.T, what string) {
	t.Helper()
	if testing.Short() {
		t.Skip("it needs " + what)
	}
}
