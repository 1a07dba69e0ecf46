// Package limitfile reads limits from a file, and changes them while a program runs:
//
//	# limits.conf
//	per-user: funnel 100, 10/s
//	    per: user                       # for people: the program gives the keys
//	    plan gold: funnel 1000, 100/s   # for keys of that plan
//	    candidate: sliding 500/m        # tried beside the limit, without effect
//	    warn-at: 0.8, 0.95
//	    penalty: 5 in 1m, block 10m, at most 1h
//	login: at most 5/10m
//	    shadow: yes                     # counted, and refuses no call
//	upstream: funnel 3000, 1000/s
//	    reserved: funnel 900, 300/s     # the part out of which guarantees come
//	    share gold: funnel 300, 100/s   # the guarantee of that tenant
//	    ceiling gold: funnel 900, 400/s # bounds the units that the tenant borrows
//
// [Open] reads and watches the file. [Engine], [With] and [Shares] return the limiter of a name, which follows
// the file. A file with a fault is refused as a whole, and the limits of the last good file stay in force.
//
// A [Source] has a limit of its own for each key, from a database or another program. It uses no file.
//
// # The format
//
// The file is UTF-8 text of up to 16 MiB, regular or a link to a regular file.
//
//   - A line "name: limit" begins a limit. [policy.Parse] parses the text after the colon. A name has 1 to
//     64 letters, digits, dots, dashes and underscores, and must not be the key of a setting.
//   - The indented lines below a limit are its settings, each given once. A limit may have several
//     plans. The penalty "5 in 1m, block 10m" may end with ", at most 1h" and ", forget 2h": see
//     [engine.Penalty].
//   - A # at the beginning of a line or after a space begins a comment.
//
// Start reading in format.go, which reads a file. changes.go compares two files, and decides whether a
// running program can follow. file.go watches the file, and limiter.go and shares.go have the limiters that
// follow it. source.go uses none of the others.
package limitfile
