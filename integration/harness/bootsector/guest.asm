# The smallest guest: a boot sector that needs no driver and no other file, and obeys its serial console.
#
#	as --32 -o guest.o guest.asm && objcopy -O binary guest.o guest.bin
#
# At its start it adds one to the counter in the second sector of its disk and says "boot X", where X is A for the first
# start. Then it echoes each letter that it reads, and does what the letter says:
#
#	o	powers the machine off
#	i	ignores the power button from now on
#	w	writes to the disk from the 64th sector on, 32 KiB at a time, and says "w" for each, and "E" and a line break at the end of the disk
#
# Without "i", it powers the machine off when its power button is pressed. Between its letters it sleeps.
#
# Ports: ACPI registers of QEMU's q35 as SeaBIOS places them (status 0x600, enable 0x602, control 0x604), and the
# UART 16550 at 0x3f8.

	.code16
	.globl	_start
_start:	cli
	cld
	xorw	%ax, %ax
	movw	%ax, %ds
	movw	%ax, %es
	movw	%ax, %ss
	movw	$0x7c00, %sp
	ljmp	$0, $(entry + 0x7c00)
entry:	movb	%dl, (drive + 0x7c00)

	movw	$0x602, %dx		# the power button sets its bit in the status
	movw	$0x100, %ax
	outw	%ax, %dx

	movw	$(count + 0x7c00), %si	# one boot more
	movb	$0x42, %ah
	call	disk
	incb	(0x8000)
	movb	$0x43, %ah
	call	disk

	movw	$(hello + 0x7c00), %si
next:	lodsb
	testb	%al, %al
	jz	said
	call	say
	jmp	next
said:	movb	(0x8000), %al
	addb	$('A' - 1), %al
	call	say
	movb	$'\n', %al
	call	say

loop:	movw	$0x600, %dx		# the power button
	inw	%dx, %ax
	testb	$1, %ah
	jz	write
	outw	%ax, %dx		# a bit is cleared by writing it
	cmpb	$0, (deaf + 0x7c00)
	je	off

write:	cmpb	$0, (writing + 0x7c00)
	je	sleep
	movw	$(chunk + 0x7c00), %si
	movb	$0x43, %ah
	call	disk
	movb	$'w', %al
	jnc	wrote
	movb	$0, (writing + 0x7c00)
	movb	$'E', %al
wrote:	call	say
	cmpb	$'E', %al
	jne	1f
	movb	$'\n', %al		# logs have whole lines
	call	say
1:
	addw	$64, (chunk + 0x7c00 + 8)
	adcw	$0, (chunk + 0x7c00 + 10)
	jmp	read

sleep:	sti				# the timer wakes it 18 times a second
	hlt
	cli

read:	movw	$0x3fd, %dx
	inb	%dx, %al
	testb	$1, %al
	jz	loop
	movw	$0x3f8, %dx
	inb	%dx, %al
	call	say
	cmpb	$'o', %al
	je	off
	cmpb	$'i', %al
	jne	1f
	movb	$1, (deaf + 0x7c00)
1:	cmpb	$'w', %al
	jne	loop
	movb	$1, (writing + 0x7c00)
	jmp	loop

off:	movw	$0x604, %dx
	movw	$0x2000, %ax
	outw	%ax, %dx
1:	hlt
	jmp	1b

# say writes the letter in %al.
say:	pushw	%ax
	movw	$0x3fd, %dx
1:	inb	%dx, %al
	testb	$0x20, %al
	jz	1b
	popw	%ax
	movw	$0x3f8, %dx
	outb	%al, %dx
	ret

# disk calls the BIOS with the function in %ah and the packet at %si.
disk:	movb	$0, %al
	movb	(drive + 0x7c00), %dl
	int	$0x13
	cli
	ret

drive:	.byte	0
deaf:	.byte	0
writing: .byte	0
hello:	.asciz	"\nboot "

	.balign	4
count:	.byte	16, 0			# size of the packet
	.word	1			# sectors
	.word	0x8000, 0		# offset and segment of the memory
	.quad	1			# first sector
chunk:	.byte	16, 0
	.word	64
	.word	0, 0xf000		# the BIOS, which is not all zeros
	.quad	64

	.org	510
	.byte	0x55, 0xaa
