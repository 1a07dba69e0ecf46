// Command rald keeps limits for programs in any language. It speaks the protocol of Redis:
// CL.THROTTLE like the module redis-cell, and commands of its own for every other limit. It answers
// Envoy's rate limit service by the configuration of envoyproxy/ratelimit, and HTTP checks of
// nginx, Caddy and Traefik.
//
//	rald                        # on 127.0.0.1:7379
//	rald /etc/rald              # with the limits of /etc/rald/limits.yaml, and the HTTP checks of check.yaml
//	rald -envoy /etc/ratelimit  # with Envoy's rate limit service on 127.0.0.1:8081
//	rald check /etc/rald        # only say whether its files can be read
//
// docs/serving.md tells more.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	_ "time/tzdata" // limits name time zones, and images without a system have none

	"github.com/ral-limiter/ral/cmd/internal/version"
	"github.com/ral-limiter/ral/cmd/rald/internal/configdir"
	"github.com/ral-limiter/ral/cmd/rald/internal/configured"
	"github.com/ral-limiter/ral/cmd/rald/internal/envoyserver"
	"github.com/ral-limiter/ral/cmd/rald/internal/families"
	"github.com/ral-limiter/ral/cmd/rald/internal/rules"
)

func main() {
	err := run(context.Background(), os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "rald:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, env environment, out, problems io.Writer) error {
	if version.Asked(args) {
		_, err := io.WriteString(out, version.Line("rald"))
		return err
	}
	if len(args) > 0 {
		switch args[0] {
		case "check":
			// A signal ends the check.
			return check(args[1:], out, problems)
		case "health":
			return health(args[1:], env, out, problems)
		case "man":
			return manual(out, env)
		case "help":
			// The help goes to a pager.
			problems = out
		case "completion":
			return completion(out, strings.Join(args[1:], " "), env)
		}
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	settings, err := parse(args, env, problems)
	if err != nil {
		return err
	}
	log, err := settings.log.logger(problems)
	if err != nil {
		return err
	}
	return serve(ctx, settings, log)
}

func warnings(of *rules.Set) (text string) {
	if of != nil {
		for _, unused := range of.Unused() {
			text += fmt.Sprintf("warning: %v\n", unused)
		}
	}
	return text
}

// many returns a count with its noun.
func many(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// check says whether a directory's files, or with -envoy its rules, can be read and have room.
func check(args []string, out, problems io.Writer) error {
	flags := flag.NewFlagSet("rald check", flag.ContinueOnError)
	flags.SetOutput(problems)
	flags.Usage = func() {
		_, _ = fmt.Fprint(problems, "Usage: rald check [-envoy] [-envoy-merge] [-limits FILE] [DIR]\n\nCheck reports the faults of all files of DIR, and of FILE.\n\n")
		flags.PrintDefaults()
	}
	envoy := flags.Bool("envoy", false, "the directory has configuration files of envoyproxy/ratelimit")
	file := flags.String("limits", "", limitsUsage)
	var options rules.Options
	flags.BoolVar(&options.Merge, "envoy-merge", false, mergeUsage)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 && (flags.NArg() > 1 || *file == "" || *envoy) {
		return fmt.Errorf("rald check takes one directory, or -limits, not %q: flags come before it", flags.Args())
	}
	dir := flags.Arg(0)
	dirs := configdir.Dirs{Envoy: dir}
	if !*envoy {
		dirs = configdir.Under(dir, "")
	}
	dirs.Rules, dirs.File = options, *file
	config, err := dirs.Read()
	if err != nil {
		return err
	}
	err = configured.Room(families.Config{}, config.Limits)
	text := fmt.Sprintf("%s%s: ", warnings(config.Rules), cmp.Or(dir, *file))
	if !*envoy {
		text += many(len(config.Limits.Limits), "limit")
	}
	if config.Checks != nil {
		text += ", " + many(config.Checks.Len(), "rule") + " of the HTTP check"
	}
	if config.Rules != nil {
		err = errors.Join(err, envoyserver.Room(families.Config{}, config.Rules))
		if *envoy {
			text += many(len(config.Rules.Rules()), "rule")
		} else {
			text += ", " + many(len(config.Rules.Rules()), "rule") + " of Envoy's rate limit service"
		}
	}
	if err == nil {
		_, err = fmt.Fprintln(out, text)
	}
	return err
}
