package qmp

// Names of events and what their data contains (QEMU: qapi/run-state.json, qdev.json, acpi.json, block.json,
// char.json, ui.json).
const (
	// EventShutdown says that the machine went down; see Shutdown.
	EventShutdown = "SHUTDOWN"
	// EventReset says that the machine was reset; see Shutdown.
	EventReset = "RESET"
	// EventTrayMoved says that the tray of a drive opened or closed.
	EventTrayMoved = "DEVICE_TRAY_MOVED"
	// EventSPICEInitialized says that a channel of a viewer is up; see SPICEChannel. EventSPICEDisconnected says that one
	// is down; its data has only the address.
	EventSPICEInitialized  = "SPICE_INITIALIZED"
	EventSPICEDisconnected = "SPICE_DISCONNECTED"

	eventDeviceDeleted = "DEVICE_DELETED"
	eventUnplugRefused = "DEVICE_UNPLUG_GUEST_ERROR"
	eventOST           = "ACPI_DEVICE_OST"
)

// Shutdown is the data of EventShutdown and EventReset.
type Shutdown struct {
	// Guest says whether the guest initiated it.
	Guest bool `json:"guest"`
	// Reason is a ShutdownCause: guest-shutdown, guest-reset, host-qmp-quit, host-signal …
	Reason string `json:"reason"`
}

// SPICEChannel is the data of EventSPICEInitialized.
type SPICEChannel struct {
	Client SPICEClient `json:"client"`
}

// SPICEClient is a channel of a viewer.
type SPICEClient struct {
	Host string `json:"host"`
	Port string `json:"port"`
	// Type is SPICEMain for the main channel, of which a viewer has one.
	Type int `json:"channel-type"`
}

// SPICEMain is the Type of the main channel (SPICE_CHANNEL_MAIN of spice/enums.h).
const SPICEMain = 1

// deletion is the data of eventDeviceDeleted and eventUnplugRefused.
type deletion struct {
	Device string `json:"device"`
	Path   string `json:"path"`
}

// ost is the data of eventOST: the guest's _OST report on a plug or unplug (ACPI 6.4 §6.3.5).
type ost struct {
	Info struct {
		Device string `json:"device"`
		Source int    `json:"source"`
		Status int    `json:"status"`
	} `json:"info"`
}

// isEject reports whether the report is about an unplug, requested by the host (3) or by the guest (0x103).
func (o ost) isEject() bool { return o.Info.Source&0xff == 3 }
