# frozen_string_literal: true

# The lexical expansion of names, which never touches the disk.
module Thruway
  FILE_EXPAND_PATH = File.method(:expand_path)
  private_constant :FILE_EXPAND_PATH

  # The absolute form of `path`, relative to `base` or to the current folder.
  #
  # With the flavour `:posix`, the result equals that of `File.expand_path` on POSIX, including `~`,
  # `~user`, encodings and errors. With `:windows`, the result equals that of Ruby on Windows, on
  # any system: a relative name without a base starts at `C:/`, and `~` is the variable HOME.
  def self.expand_path(path, base = nil, flavour: :posix)
    case flavour
    when :posix then expand_posix(path, base)
    when :windows then expand_in_utf8(File.path(path), base && File.path(base))
    else raise ArgumentError, "unknown flavour #{flavour.inspect}: use :posix or :windows"
    end
  rescue Encoding::CompatibilityError
    # The rules for combining encodings depend on Ruby's version, so Ruby itself decides.
    flavour == :posix ? FILE_EXPAND_PATH.call(path, base) : raise
  end

  # Expands a path in UTF-8. The rules of Windows concern characters: in some encodings, the byte of
  # `\` is a part of another character.
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
