// Package jsonlog writes logs as lines of JSON with fixed keys, which queries of log stores rely on: timestamp, level,
// controller, the kind of the object in small letters, namespace, phase and message.
package jsonlog

import (
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	ctrlzap "sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Keys of the lines. The name of the object has the kind of the object in small letters as its key: see Constructor.
const (
	// KeyTimestamp is the time in RFC 3339 format, in UTC with a Z.
	KeyTimestamp = "timestamp"
	// KeyLevel is debug, info, warn or error.
	KeyLevel = "level"
	// KeyController is the kind of the objects that a controller reconciles, as the API spells it.
	KeyController = "controller"
	// KeyNamespace is the namespace of the object.
	KeyNamespace = "namespace"
	// KeyPhase is the phase of the object, where a line is about that.
	KeyPhase = "phase"
	// KeyMessage says what happened.
	KeyMessage = "message"
)

// timeFormat has a fixed width, so that lines sort by their text.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

var levels = map[string]zapcore.Level{
	"debug": zapcore.DebugLevel, "info": zapcore.InfoLevel, "warn": zapcore.WarnLevel, "error": zapcore.ErrorLevel,
}

// Levels are the names of the levels, sorted.
func Levels() []string { return slices.Sorted(maps.Keys(levels)) }

// New writes lines of the level and above; a level that is not one of Levels means info. Nothing is left out when there
// are many lines, because each may be the only one about its object. Stack traces are omitted: they would always be those
// of the queue.
func New(w io.Writer, level string) logr.Logger {
	least, ok := levels[level]
	if !ok {
		least = zapcore.InfoLevel
	}
	encoder := zapcore.NewJSONEncoder(zapcore.EncoderConfig{
		TimeKey: KeyTimestamp, LevelKey: KeyLevel, MessageKey: KeyMessage, NameKey: "logger", LineEnding: zapcore.DefaultLineEnding,
		EncodeTime: utc, EncodeLevel: lower, EncodeDuration: zapcore.StringDurationEncoder, EncodeName: zapcore.FullNameEncoder,
	})
	// The encoder of controller-runtime writes an object of Kubernetes as its name and not as all of its content, which may
	// be secret.
	core := zapcore.NewCore(&ctrlzap.KubeAwareEncoder{Encoder: encoder}, zapcore.Lock(zapcore.AddSync(w)), least)
	return zapr.NewLogger(zap.New(core))
}

func utc(at time.Time, out zapcore.PrimitiveArrayEncoder) {
	out.AppendString(at.UTC().Format(timeFormat))
}

// lower writes levels beyond debug, which have no name, as debug.
func lower(level zapcore.Level, out zapcore.PrimitiveArrayEncoder) {
	out.AppendString(max(level, zapcore.DebugLevel).String())
}

// Constructor is for the option LogConstructor of a controller: lines have the kind as controller, and in a pass the name
// of the object under the kind in small letters, and its namespace. For kind Machine these are controller, machine and
// namespace.
func Constructor(base logr.Logger, kind string) func(*reconcile.Request) logr.Logger {
	ofController := base.WithValues(KeyController, kind)
	return func(request *reconcile.Request) logr.Logger {
		if request == nil {
			return ofController
		}
		return ofController.WithValues(strings.ToLower(kind), request.Name, KeyNamespace, request.Namespace)
	}
}
