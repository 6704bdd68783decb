# frozen_string_literal: true

# Names: lexical expansion that never touches the disk.
module Thruway
  FILE_EXPAND_PATH = File.method(:expand_path)
  private_constant :FILE_EXPAND_PATH

  # The absolute form of `path`, relative to `base` or to the current folder.
  #
  # With the flavour `:posix` it is what `File.expand_path` answers on POSIX: `~` and `~user`,
  # encodings and errors too. With `:windows` it is what Ruby answers on Windows, wherever this
  # runs. A relative name without a base then starts at `C:/`, and `~` is the variable HOME.
  def self.expand_path(path, base = nil, flavour: :posix)
    case flavour
    when :posix then expand_posix(path, base)
    when :windows then expand_in_utf8(File.path(path), base && File.path(base))
    else raise ArgumentError, "no flavour #{flavour.inspect}: it is :posix or :windows"
    end
  rescue Encoding::CompatibilityError
    # Which encodings go together depends on Ruby's version: 3.3 takes more than 3.1.
    flavour == :posix ? FILE_EXPAND_PATH.call(path, base) : raise
  end

  # Windows' rules are about characters, and an encoding may hide a `\` in one of them.
  def self.expand_in_utf8(path, base)
    expanded = expand_windows(in_utf8(path), base && in_utf8(base))
    compatible?(path) ? expanded : expanded.encode(path.encoding)
  end

  def self.in_utf8(text)
    compatible?(text) ? text : text.encode(Encoding::UTF_8)
  end

  def self.compatible?(text)
    [Encoding::UTF_8, Encoding::US_ASCII, Encoding::BINARY].include?(text.encoding)
  end

  private_class_method :expand_posix, :expand_windows, :expand_in_utf8, :in_utf8, :compatible?
end
