package main

import (
	"flag"
	"fmt"
	"io"
	"strings"
)

func manual(w io.Writer, env environment) error {
	var builder strings.Builder
	roff := strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace
	builder.WriteString(".TH RALD 1\n.SH NAME\nrald \\- limits for programs in any language\n.SH SYNOPSIS\n.nf\n")
	synopsis, description, _ := strings.Cut(usage, "\n\n")
	builder.WriteString(roff(strings.ReplaceAll(strings.TrimPrefix(synopsis, "Usage: "), "\n       ", "\n")))
	builder.WriteString("\n.fi\n.SH DESCRIPTION\n" + roff(strings.TrimSpace(description)) + "\n.SH OPTIONS\n")
	new(settings).flags(env).VisitAll(func(option *flag.Flag) {
		value, text := flag.UnquoteUsage(option)
		fmt.Fprintf(&builder, ".TP\n.B \\-%s\n", roff(strings.TrimSpace(option.Name+" "+value)))
		if option.DefValue != "" && option.DefValue != "false" && option.Name != "state" {
			text += " (default " + option.DefValue + ")"
		}
		builder.WriteString(roff(text) + ". In the environment: " + variable(option.Name) + ".\n")
	})
	builder.WriteString(".SH ENVIRONMENT\nA flag wins over its variable, and an empty variable sets nothing.\n.TP\n.B RALD_PASSWORD\nThe password for AUTH.\n" +
		".TP\n.B RALD_ADMIN_TOKENS\nLines of the name and the token of an operator.\n" +
		".TP\n.B RALD_REDIS_PASSWORD\nThe password of the Redis of \\-redis.\n")
	_, err := io.WriteString(w, builder.String())
	return err
}

func completion(w io.Writer, shell string, env environment) error {
	var words, zsh, fish []string
	new(settings).flags(env).VisitAll(func(option *flag.Flag) {
		value, text := flag.UnquoteUsage(option)
		text = strings.NewReplacer("'", "’", "[", "(", "]", ")", ":", " -").Replace(text)
		words = append(words, "-"+option.Name)
		argument, required := "", ""
		if value != "" {
			argument, required = ":"+value+":_files", " -r"
		}
		zsh = append(zsh, fmt.Sprintf("  '-%s[%s]%s'", option.Name, text, argument))
		fish = append(fish, fmt.Sprintf("complete -c rald -o %s%s -d '%s'", option.Name, required, text))
	})
	commands := "check completion health help man version"
	var err error
	switch shell {
	case "bash":
		_, err = fmt.Fprintf(w, "complete -o default -W '%s %s' rald\n", commands, strings.Join(words, " "))
	case "zsh":
		_, err = fmt.Fprintf(w, "#compdef rald\n_arguments \\\n%s \\\n  '1:command or directory:_alternative \"commands:command:(%s)\" \"files:directory:_files -/\"'\n", strings.Join(zsh, " \\\n"), commands)
	case "fish":
		_, err = fmt.Fprintf(w, "%s\ncomplete -c rald -a '%s'\n", strings.Join(fish, "\n"), commands)
	default:
		err = fmt.Errorf("rald completion takes a shell: bash, zsh or fish is accepted, not %q", shell)
	}
	return err
}
