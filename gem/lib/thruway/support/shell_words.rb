# frozen_string_literal: true

module Thruway
  # Splits a command into words as a shell does, without expansions. The library `shellwords` is not
  # used, because it may be a gem of the application's bundle.
  module ShellWords
    # Blanks, or a piece of a word: in single or double quotes, escaped, or plain.
    PIECE = /\G(?:(?<blank>\s+)|'(?<raw>[^']*)'|"(?<quoted>(?:[^"\\]|\\.)*)"|\\(?<one>.)|
              (?<plain>[^\s\\'"]+))/mx

    module_function

    def split(command)
      words = [nil]
      at = 0
      while at < command.length
        piece = PIECE.match(command, at) or raise ArgumentError, "unmatched quote: #{command}"
        piece[:blank] ? words << nil : (words[-1] = "#{words[-1]}#{text_of(piece)}")
        at = piece.end(0)
      end
      words.compact
    end

    # In double quotes, a backslash stays unless a special character follows.
    def text_of(piece)
      quoted = piece[:quoted]&.gsub(/\\([$`"\\\n])/, '\1')
      quoted || piece[:raw] || piece[:one] || piece[:plain]
    end

    private_class_method :text_of
  end
end
