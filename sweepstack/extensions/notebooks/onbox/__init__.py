"""What is sent to a box: one module, as an argument, which `ps` there shows. It holds no secret."""
