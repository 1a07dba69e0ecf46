package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/ral-limiter/ral/cmd/ral/internal/report"
)

// watch shows the view in a terminal until the context ends or q is pressed.
func watch(ctx context.Context, client *client, settings settings, out io.Writer, more ...tea.ProgramOption) error {
	_, err := tea.NewProgram(&screen{ctx: ctx, client: client, settings: settings}, append(more, tea.WithContext(ctx), tea.WithOutput(out))...).Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return nil // Ctrl-C
	}
	return err
}

// screen is the terminal's content. One look is under way at a time.
type screen struct {
	ctx      context.Context
	client   *client
	settings settings

	view          view
	err           error // of the last look
	width, height int
	looking       bool
	again         bool // look once more as soon as the look under way has ended
}

type (
	looked struct { // the end of a look
		view view
		err  error
	}
	due struct{} // it is time for the next look
)

func (s *screen) Init() tea.Cmd { return s.look() }

func (s *screen) look() tea.Cmd {
	if s.looking {
		s.again = true
		return nil
	}
	s.looking, s.again = true, false
	limit, rows := s.settings.limit, s.settings.rows
	if rows == 0 {
		rows = min(max(s.height, minRows), maxRows)
	}
	return func() tea.Msg {
		view, err := s.client.look(s.ctx, limit, rows)
		return looked{view, err}
	}
}

func (s *screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch m := msg.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = m.Width, m.Height
		return s, s.look() // for more rows
	case tea.KeyPressMsg:
		switch m.String() {
		case "q", "esc", "ctrl+c":
			return s, tea.Quit
		case "down", "j", "tab":
			return s, s.choose(1)
		case "up", "k", "shift+tab":
			return s, s.choose(-1)
		}
	case looked:
		s.looking, s.err = false, m.err
		if m.err == nil {
			s.view = m.view
		}
		if s.again {
			return s, s.look()
		}
		return s, tea.Tick(s.settings.every, func(time.Time) tea.Msg { return due{} })
	case due:
		return s, s.look()
	}
	return s, nil
}

func (s *screen) choose(step int) tea.Cmd {
	all := s.view.overview.Limits
	if len(all) == 0 {
		return nil
	}
	now := 0
	for i := range all {
		if all[i].Name == s.view.chosen {
			now = i
		}
	}
	next := all[(now+step+len(all))%len(all)].Name
	s.settings.limit, s.view.chosen = next, next
	s.view.owed.Limit = "" // the lists of another limit
	return s.look()
}

func (s *screen) View() tea.View {
	view := tea.NewView(s.text())
	view.AltScreen = true
	view.WindowTitle = "ral top"
	return view
}

func (s *screen) text() string {
	text := "Looking.\n"
	if s.view.overview.Limits != nil {
		text = s.view.text(s.width, max(s.height-2, 0))
	}
	foot := "up and down: another limit   q: quit"
	if s.err != nil {
		foot = report.Printable(s.err.Error())
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if s.height > 2 && len(lines) > s.height-2 {
		lines = append(lines[:s.height-3], "(More lines do not fit.)")
	}
	return strings.Join(lines, "\n") + "\n\n" + foot
}
