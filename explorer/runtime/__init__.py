"""What a device needs: machine code, launches, memory, and the worker processes that hold them."""
