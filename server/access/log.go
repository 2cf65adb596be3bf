package access

import (
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/log/tag"
)

// refusalMessage is the message with which the server logs each refused call.
const refusalMessage = "Authorization error"

// shortRefusals is a logger that writes a refused call as information. The server logs it as an
// error of its own, with a stack trace of thirty lines.
type shortRefusals struct{ log.Logger }

// WithShortRefusals returns the logger with one line for each refused call.
func WithShortRefusals(logger log.Logger) log.Logger { return shortRefusals{logger} }

// Error logs what is no refusal as an error.
func (s shortRefusals) Error(message string, tags ...tag.Tag) {
	if message == refusalMessage {
		s.Logger.Info(message, tags...)
		return
	}
	s.Logger.Error(message, tags...)
}
