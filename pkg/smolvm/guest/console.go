package guest

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// console is the machine's serial console, to which the workload and the agent write.
type console struct {
	mu   sync.Mutex
	file *os.File
}

// openConsole opens the kernel's console (console= of its command line), and has it write bytes as they are.
func openConsole() *console {
	file, err := os.OpenFile("/dev/console", os.O_WRONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return &console{file: os.Stderr} // which the kernel has opened
	}
	if mode, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS); err == nil {
		mode.Oflag &^= unix.OPOST
		_ = unix.IoctlSetTermios(int(file.Fd()), unix.TCSETS, mode) // else each line ends with a carriage return
	}
	return &console{file: file}
}

// Write writes what a process of the image has written.
func (c *console) Write(text []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.file.Write(text)
}

// say writes a sentence of the agent.
func (c *console) say(format string, arguments ...any) {
	sentence := strings.ReplaceAll(fmt.Sprintf(format, arguments...), "\n", " ")
	_, _ = fmt.Fprintf(c, "smolvm: %s\n", sentence) // there is no other place for it
}

// powerOff ends the machine at once. What was written to the console is out before.
func (c *console) powerOff() {
	_ = unix.IoctlSetInt(int(c.file.Fd()), unix.TCSBRK, 1) // tcdrain(3)
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	os.Exit(1) // the kernel has refused, and panics without process 1
}
