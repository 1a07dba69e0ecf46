package redisserver

// Stats are the figures of a Server since New.
type Stats struct {
	// Clients is the number of present connections.
	Clients int
	// Accepted counts connections.
	Accepted uint64
	// Refused counts the connections beyond Config.Clients.
	Refused uint64
	// Garbled counts the connections that ended because they sent no command.
	Garbled  uint64
	Commands []CommandStats

	Reservations ReservationStats
}

// CommandStats are the figures of a command.
type CommandStats struct {
	// Name is in lower case. "unknown" stands for all unknown commands.
	Name string
	// OK and Errors count the commands by the reply.
	OK, Errors uint64
}

// count counts a reply. A nil command is unknown.
func (s *Server) count(command *command, isError bool) {
	index := len(commands)
	if command != nil {
		index = command.index
	}
	if isError {
		s.commands[index].errors.Add(1)
	} else {
		s.commands[index].ok.Add(1)
	}
}

// Stats returns the figures, with commands in order of their names.
func (s *Server) Stats() Stats {
	all := Stats{
		Clients: int(s.clients.Load()), Accepted: uint64(s.total.Load()),
		Refused: uint64(s.refused.Load()), Garbled: uint64(s.garbled.Load()),
		Reservations: s.reservations.stats(),
	}
	add := func(name string, counts *commandCounts) {
		all.Commands = append(all.Commands, CommandStats{name, counts.ok.Load(), counts.errors.Load()})
	}
	for _, name := range names() {
		add(name, &s.commands[commands[name].index])
	}
	add("unknown", &s.commands[len(commands)])
	return all
}

func (s Stats) total() (n uint64) {
	for _, c := range s.Commands {
		n += c.OK + c.Errors
	}
	return n
}
