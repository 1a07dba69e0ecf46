package main

import (
	"image/color"
	"io"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const bin = 100 * time.Millisecond

var (
	ink     = color.Gray{60}
	pale    = color.Gray{210}
	blue    = color.RGBA{0x1f, 0x77, 0xb4, 0xff}
	orange  = color.RGBA{0xd9, 0x5f, 0x02, 0xff}
	dashing = []vg.Length{vg.Points(4), vg.Points(3)}
)

// picture draws calls and their starts as bars, and the starts within the last second as a line.
func picture(w io.Writer, title string, played played) error {
	plot.DefaultFont.Variant, plotter.DefaultFont.Variant = "Sans", "Sans"
	chart := plot.New()
	chart.BackgroundColor = color.White
	chart.Title.Text = title
	chart.Title.Padding = vg.Points(4)
	chart.X.Label.Text = "seconds"
	chart.X.Min, chart.X.Max = 0, length.Seconds()
	chart.Y.Min, chart.Y.Max = 0, 31
	chart.X.Tick.Marker = marks(0, 1, 2, 3, 4, 5, 6, 7, 8)
	chart.Y.Tick.Marker = marks(0, 10, 20, 30)
	chart.X.Color, chart.Y.Color = ink, ink
	// On the left, so that a reader's wider font runs into nothing.
	chart.Legend.Top, chart.Legend.Left = true, true
	chart.Legend.XOffs = vg.Points(130)
	chart.Legend.ThumbnailWidth = vg.Points(14)

	asked := bars(played.asked, pale)
	started := bars(played.started, blue)
	within, err := plotter.NewLine(lastSecond(played.started))
	if err != nil {
		return err
	}
	within.Color, within.Width = orange, vg.Points(1.5)
	ten, err := plotter.NewLine(plotter.XYs{{X: 0, Y: 10}, {X: length.Seconds(), Y: 10}})
	if err != nil {
		return err
	}
	ten.Color, ten.Width, ten.Dashes = ink, vg.Points(0.5), dashing
	chart.Add(asked, started, ten, within)
	chart.Legend.Add("calls in 0.1 s", asked)
	chart.Legend.Add("of them started", started)
	chart.Legend.Add("started within the last second", within)

	canvas := vgsvg.New(16*vg.Centimeter, 6*vg.Centimeter)
	chart.Draw(vgdraw.New(canvas))
	_, err = canvas.WriteTo(w)
	return err
}

func marks(at ...float64) plot.ConstantTicks {
	ticks := make(plot.ConstantTicks, len(at))
	for i, value := range at {
		ticks[i] = plot.Tick{Value: value, Label: strconv.Itoa(int(value))}
	}
	return ticks
}

func bars(starts []time.Duration, fill color.Color) *plotter.Histogram {
	histogram := &plotter.Histogram{FillColor: fill, LineStyle: vgdraw.LineStyle{Color: fill, Width: 0}}
	for duration := time.Duration(0); duration < length; duration += bin {
		var n float64
		for _, t := range starts {
			if duration <= t && t < duration+bin {
				n++
			}
		}
		histogram.Bins = append(histogram.Bins, plotter.HistogramBin{Min: duration.Seconds(), Max: (duration + bin).Seconds(), Weight: n})
	}
	histogram.Width = bin.Seconds()
	return histogram
}

// lastSecond counts the starts in the second before each hundredth.
func lastSecond(started []time.Duration) (line plotter.XYs) {
	for end := time.Duration(0); end <= length; end += second / 100 {
		var n float64
		for _, t := range started {
			if end-second < t && t <= end {
				n++
			}
		}
		line = append(line, plotter.XY{X: end.Seconds(), Y: n})
	}
	return line
}
