package servebench

import (
	"context"
	_ "embed"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// connections is the number of connections of clients of Redis.
const connections = 50

// Connections to a rate limit service, and requests under way.
const (
	envoyConnections = 4
	eachAtATime      = 16
)

const method = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

//go:embed ratelimit.proto
var proto string

// message is the request of all generators in protocol buffers: {domain: bench, descriptors:
// {entries: {key: user, value: ann}}}.
const message = "\x0a\x05bench\x12\x0d\x0a\x0b\x0a\x04user\x12\x03ann"

const (
	protoFile   = "ratelimit.proto"
	messageFile = "message"
	bodyFile    = "body"
)

func (l *servers) file(name string) string { return filepath.Join(l.Dir, name) }

// writeInputs writes the files of the generators and of the rate limit services to a folder.
func writeInputs(dir string) (err error) {
	body := "\x00\x00\x00\x00" + string(rune(len(message))) + message // of gRPC: not compressed, and the length
	err = os.MkdirAll(filepath.Join(dir, "rules/config"), 0o700)
	for name, text := range map[string]string{protoFile: proto, messageFile: message, bodyFile: body, "rules/config/bench.yaml": rules} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return err
}

// redisBenchmark sends so many commands to a server.
func redisBenchmark(ctx context.Context, network, addr string, pipeline, keys, requests int, command []string) (Round, error) {
	args := []string{"-s", addr}
	if network == "tcp" {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return Round{}, err
		}
		args = []string{"-h", host, "-p", port}
	}
	args = append(args, "-c", strconv.Itoa(connections), "-P", strconv.Itoa(pipeline), "-r", strconv.Itoa(keys), "-n", strconv.Itoa(requests), "--csv")
	out, err := outputOf(exec.CommandContext(ctx, "redis-benchmark", append(args, command...)...))
	if err != nil {
		return Round{}, err
	}
	return readCSV(out)
}

// readCSV reads the output of redis-benchmark: a row of names and a row of figures.
func readCSV(text string) (round Round, err error) {
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(rows) != 2 {
		return round, fmt.Errorf("redis-benchmark wrote %q: %w", text, err)
	}
	found := map[string]float64{}
	for i, name := range rows[0] {
		if i > 0 && i < len(rows[1]) {
			if found[name], err = strconv.ParseFloat(rows[1][i], 64); err != nil {
				return round, fmt.Errorf("%s of redis-benchmark: %w", name, err)
			}
		}
	}
	ms := func(name string) time.Duration { return time.Duration(found[name] * float64(time.Millisecond)) }
	round = Round{PerSecond: found["rps"], P50: ms("p50_latency_ms"), P99: ms("p99_latency_ms")}
	if round.PerSecond <= 0 {
		return round, fmt.Errorf("redis-benchmark wrote no rate: %q", text)
	}
	return round, nil
}

var (
	finished  = regexp.MustCompile(`(?m)^finished in [^,]+, ([0-9.]+) req/s`)
	succeeded = regexp.MustCompile(`(?m)^status codes: (\d+) 2xx`)
)

// h2load sends so many requests as fast as it can, or at a rate, if not 0, on a single connection.
func (l *servers) h2load(ctx context.Context, addr string, requests, rate int) (Round, error) {
	args := []string{"-n", strconv.Itoa(requests), "-m", strconv.Itoa(eachAtATime), "-d", l.file(bodyFile),
		"-H", "content-type: application/grpc", "-H", "te: trailers"}
	if rate > 0 {
		args = append(args, "-c", "1", "--rps", strconv.Itoa(rate))
	} else {
		args = append(args, "-c", strconv.Itoa(envoyConnections))
	}
	out, err := outputOf(exec.CommandContext(ctx, "h2load", append(args, "http://"+addr+"/"+method)...))
	if err != nil {
		return Round{}, err
	}
	return readH2load(out, requests)
}

func readH2load(text string, requests int) (round Round, err error) {
	rate, ok := finished.FindStringSubmatch(text), succeeded.FindStringSubmatch(text)
	if rate == nil || ok == nil || ok[1] != strconv.Itoa(requests) {
		return round, fmt.Errorf("h2load got other answers than %d times 200: %s", requests, text)
	}
	round.PerSecond, err = strconv.ParseFloat(rate[1], 64)
	return round, err
}

// ghz sends so many requests at a rate.
func (l *servers) ghz(ctx context.Context, addr string, requests, rate int) (Round, error) {
	out, err := outputOf(exec.CommandContext(ctx, l.file("ghz"), "--insecure", "--proto", l.file(protoFile), "--call", method, "-B", l.file(messageFile),
		"--connections", strconv.Itoa(envoyConnections), "-c", strconv.Itoa(eachAtATime), "-n", strconv.Itoa(requests), "--rps", strconv.Itoa(rate), "-O", "json", addr))
	if err != nil {
		return Round{}, err
	}
	return readGhz(out, requests)
}

// h2load sends the requests due every tick; several senders in sequence send smaller batches.
const (
	tick    = 10 * time.Millisecond
	senders = 10
)

// atRate sends so many requests in all, some of them timed by ghz.
func (l *servers) atRate(ctx context.Context, addr string, requests int) (Round, error) {
	timed := max(requests*sampled/Rate, eachAtATime)
	type result struct {
		Round
		err error
	}
	others := make(chan result, senders)
	for i := range senders {
		go func() {
			time.Sleep(tick * time.Duration(i) / senders)
			round, err := l.h2load(ctx, addr, max((requests-timed)/senders, 1), (Rate-sampled)/senders)
			others <- result{round, err}
		}()
	}
	round, err := l.ghz(ctx, addr, timed, sampled)
	for range senders {
		other := <-others
		round.PerSecond += other.PerSecond
		err = errors.Join(err, other.err)
	}
	return round, err
}

func readGhz(text string, requests int) (round Round, err error) {
	var report struct {
		PerSecond float64        `json:"rps"`
		Codes     map[string]int `json:"statusCodeDistribution"`
		Latencies []struct {
			Percentage int
			Latency    time.Duration
		} `json:"latencyDistribution"`
	}
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		return round, fmt.Errorf("ghz wrote %.200q: %w", text, err)
	}
	if report.Codes["OK"] != requests {
		return round, fmt.Errorf("ghz got other codes than %d times OK: %v", requests, report.Codes)
	}
	round.PerSecond = report.PerSecond
	for _, l := range report.Latencies {
		switch l.Percentage {
		case 50:
			round.P50 = l.Latency
		case 99:
			round.P99 = l.Latency
		}
	}
	return round, nil
}
