// Package xds gets the rules of Envoy's rate limit service from a management server, as
// envoyproxy/ratelimit does with CONFIG_TYPE=GRPC_XDS_SOTW. Each response on a stream of the
// aggregated discovery service is the whole configuration.
package xds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	config "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ral-limiter/ral/cmd/rald/internal/configfile"
	"github.com/ral-limiter/ral/cmd/rald/internal/rules"
	"github.com/ral-limiter/ral/internal/core/filewatch"
)

// TypeURL is the type of the resources.
const TypeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// Client is a client of a management server. All fields but Dial are required. Run runs it.
type Client struct {
	// Server is host:port.
	Server string
	// The server knows this client by Node.
	Node        string
	Credentials credentials.TransportCredentials
	Options     rules.Options
	// Set puts rules in force, or refuses them.
	Set func(*rules.Set) error
	Log *slog.Logger
	// Dial replaces the network.
	Dial func(ctx context.Context, addr string) (net.Conn, error)

	// Reads counts the configurations that came into force, and those that were refused. Fault also
	// says that the server is away.
	Reads configfile.Reads

	// version is the version in force.
	version string
	// refusal is the refusal of the last configuration, or "".
	refusal string
}

const (
	// firstPause is the pause before connecting again. It doubles up to maxPause.
	firstPause = time.Second
	maxPause   = 30 * time.Second
	// maxRefusal bounds the bytes of a NACK, and of a refusal in the log.
	maxRefusal = 4 << 10

	// After silence a dead connection is looked for. grpc-go's servers forbid less than 5 minutes.
	silence = 6 * time.Minute
)

// Run follows the server until the context ends. While the server is away the rules stay.
func (c *Client) Run(ctx context.Context) {
	pause := firstPause
	for {
		answered, err := c.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		c.Reads.Fail(fmt.Errorf("the management server is away: %w", err))
		if answered {
			pause = firstPause
		}
		wait := pause/2 + rand.N(pause/2)
		c.Log.Warn("the management server is away, and the rules stay as they are", "server", c.Server, "error", err, "again_in", wait)
		sleep(ctx, wait)
		pause = min(2*pause, maxPause)
	}
}

func sleep(ctx context.Context, duration time.Duration) {
	select {
	case <-time.After(duration):
	case <-ctx.Done():
	}
}

// follow obeys a stream until it ends. answered reports whether there was a response.
func (c *Client) follow(ctx context.Context) (answered bool, err error) {
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(c.Credentials),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(filewatch.MaxBytes)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: silence}),
	}
	if c.Dial != nil {
		options = append(options, grpc.WithContextDialer(c.Dial))
	}
	// A host may have the name of a scheme.
	conn, err := grpc.NewClient("dns:///"+c.Server, options...)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return false, err
	}
	// A server that has nothing new does not respond.
	switch {
	case c.refusal != "":
		c.Reads.Fail(errors.New(c.refusal))
	case c.version == "":
		c.Reads.Fail(errors.New("the management server has sent no rules yet"))
	default:
		c.Reads.Fail(nil)
	}
	c.Log.Info("connected to the management server", "server", c.Server, "version", c.version)
	node := &core.Node{Id: c.Node, UserAgentName: "rald"}
	request := &discovery.DiscoveryRequest{}
	for pause := firstPause; ; {
		request.Node, request.TypeUrl, request.VersionInfo = node, TypeURL, c.version
		// Recv has the reason for EOF.
		if err := stream.Send(request); err != nil && !errors.Is(err, io.EOF) {
			return answered, err
		}
		response, err := stream.Recv()
		if err != nil {
			return answered, err
		}
		answered = true
		request = &discovery.DiscoveryRequest{ResponseNonce: response.Nonce}
		before := c.refusal
		switch c.set(response); {
		case c.refusal == "" || before == "":
			pause = firstPause
		case c.refusal != before:
			sleep(ctx, firstPause)
			pause = firstPause
		// go-control-plane sends a refused configuration again at once.
		default:
			sleep(ctx, pause)
			pause = min(2*pause, maxPause)
		}
		if c.refusal != "" {
			request.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: c.refusal}
		}
	}
}

// set puts a configuration in force, or refuses all of it. It tells a repeated refusal once.
func (c *Client) set(response *discovery.DiscoveryResponse) {
	set, err := parse(response.Resources, c.Options)
	if err == nil {
		err = c.Set(set)
	}
	c.Reads.Fail(err)
	if err != nil {
		withoutLines(err)
		text := err.Error()
		if len(text) > maxRefusal {
			text = strings.ToValidUTF8(text[:maxRefusal], "") + " ..."
		}
		if text != c.refusal {
			c.refusal = text
			c.Reads.Bad.Add(1)
			c.Log.Error("the rules stay as they are, as the management server's are refused", "server", c.Server, "version", response.VersionInfo, "error", text)
		}
		return
	}
	c.version, c.refusal = response.VersionInfo, ""
	c.Reads.Good.Add(1)
	c.Log.Info("the management server's rules are in force", "server", c.Server, "version", c.version, "rules", len(set.Rules()))
}

// parse returns the rules of all resources, which it reads as files, by name: servers send them in
// any order. JSON is YAML.
func parse(resources []*anypb.Any, options rules.Options) (*rules.Set, error) {
	var files []rules.Source
	var faults []error
	var all []*config.RateLimitConfig
	for i, resource := range resources {
		rateLimitConfig := new(config.RateLimitConfig)
		if err := resource.UnmarshalTo(rateLimitConfig); err != nil {
			faults = append(faults, fmt.Errorf("resource %d: %w", i, err))
			continue
		}
		all = append(all, rateLimitConfig)
	}
	slices.SortStableFunc(all, func(a, b *config.RateLimitConfig) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Domain, b.Domain))
	})
	for _, config := range all {
		name := fmt.Sprintf("domain %q of resource %q", config.Domain, config.Name)
		if key := unknown(config); key != "" {
			faults = append(faults, &configfile.Error{File: name, Key: key, Err: errors.New("a field here is of a later version of the protocol, which is not accepted")})
			continue
		}
		config.Name = ""
		text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(config)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", name, err))
		}
		files = append(files, rules.Source{Name: name, Text: text})
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return rules.Parse(files, options)
}

// unknown returns the path of a message with a field that is not known, or "".
func unknown(of *config.RateLimitConfig) (path string) {
	_ = protorange.Range(of.ProtoReflect(), func(values protopath.Values) error {
		if message, ok := values.Index(-1).Value.Interface().(protoreflect.Message); ok && len(message.GetUnknown()) > 0 {
			path = cmp.Or(strings.TrimPrefix(values.Path[1:].String(), "."), "the whole")
			return protorange.Terminate
		}
		return nil
	})
	return path
}

// withoutLines takes the line numbers out of faults, as the text made from the message is not shown.
func withoutLines(err error) {
	switch e := err.(type) {
	case *configfile.Error:
		e.Line = 0
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			withoutLines(inner)
		}
	}
}
