def ask(name, folder=None):
    try:
        os.stat(name, dir_fd=folder)
    except OSError:
        pass
