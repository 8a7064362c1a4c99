package live_test

// Events of QEMU that only tests look at (QEMU: qapi/run-state.json, machine.json, block.json).
const (
	eventPowerdown = "POWERDOWN"
	eventStop      = "STOP"
	eventResume    = "RESUME"
	// eventBalloonChange is sent at most once per second, and always for the last change.
	eventBalloonChange = "BALLOON_CHANGE"
)

// balloonChange is the data of eventBalloonChange.
type balloonChange struct {
	// Actual is the size of the guest in bytes.
	Actual int64 `json:"actual"`
}

// trayMoved is the data of qmp.EventTrayMoved.
type trayMoved struct {
	// ID is the device's.
	ID   string `json:"id"`
	Open bool   `json:"tray-open"`
}
